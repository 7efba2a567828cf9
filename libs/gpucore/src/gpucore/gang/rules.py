"""How the GPUs of a gang are chosen."""

import msgspec

from gpucore.scheduling.grouping import BY_LINKS, Grouping


class Rules(msgspec.Struct, frozen=True):
    """How GPUs are chosen: the policy's name, and the grouping of several GPUs."""

    policy: str = ""
    grouping: Grouping = BY_LINKS
