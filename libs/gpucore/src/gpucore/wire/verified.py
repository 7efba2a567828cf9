"""The results of ``gpushare verify`` on a node, as the annotation of the plugin's pod has them."""

from collections.abc import Mapping
from typing import Final

import msgspec

MOST_BYTES: Final = 16_384
MOST_GPUS: Final = 64


class VerifiedNode(msgspec.Struct, frozen=True):
    """The last results.

    Attributes:
        at: Unix time of the run.
        gpus: verdict (pass, fail, known, skip) by index of the GPU and name of the row.
    """

    at: int
    gpus: Mapping[str, Mapping[str, str]]


def encode_verified(found: VerifiedNode) -> str:
    """The annotation."""
    return msgspec.json.encode(found).decode()


def decode_verified(text: str) -> VerifiedNode | None:
    """The results in an annotation; ``None`` where it has none that can be read."""
    if len(text) > MOST_BYTES:
        return None
    try:
        found = msgspec.json.decode(text, type=VerifiedNode)
    except (msgspec.MsgspecError, ValueError):
        return None
    return found if len(found.gpus) <= MOST_GPUS else None
