"""What refused nodes say, as a scheduler reads it."""

from collections import Counter

import msgspec

from gpucore.model import Code


class Said(msgspec.Struct):
    """Reasons by node.

    Attributes:
        failed: every node that refuses.
        hopeless: those of them that no eviction can help.
        counts: how many for each code.
    """

    failed: dict[str, str] = msgspec.field(default_factory=dict)
    hopeless: dict[str, str] = msgspec.field(default_factory=dict)
    counts: Counter[Code] = msgspec.field(default_factory=Counter)
