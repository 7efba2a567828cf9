"""The results of ``gpushare verify`` on a node, as the annotation of the plugin's pod has them."""

from collections.abc import Iterable, Mapping
from typing import Annotated, Final

import msgspec

from gpucore.model import Gpu

MOST_BYTES: Final = 32_768
MOST_GPUS: Final = 64
_Name = Annotated[str, msgspec.Meta(max_length=63)]
_Verdict = Annotated[str, msgspec.Meta(pattern=r"^(pass|fail|known|skip)\Z")]
_Seconds = Annotated[int, msgspec.Meta(ge=0, le=1 << 37)]
"""Before the year 6326: later ones are beyond what a program can show."""


class VerifiedNode(msgspec.Struct, frozen=True):
    """The last results.

    Attributes:
        at: Unix time of the last run; rows that it skipped, and GPUs that it left out, have the
            results of earlier runs.
        gpus: verdict by UUID of the GPU and name of the row; versions before wrote the index.
    """

    at: _Seconds
    gpus: Mapping[_Name, Mapping[_Name, _Verdict]]


def by_index(found: VerifiedNode, gpus: Iterable[Gpu]) -> dict[str, Mapping[str, str]]:
    """Verdicts by index of the GPU now and name of the row, without GPUs that the node has not."""
    indexes = {str(gpu.uuid): str(gpu.index) for gpu in gpus}
    return {
        indexes.get(gpu, gpu): rows
        for gpu, rows in found.gpus.items()
        if gpu in indexes or gpu.isdigit()
    }


def encode_verified(found: VerifiedNode) -> str:
    """The annotation."""
    return msgspec.json.encode(found).decode()


def decode_verified(text: str) -> VerifiedNode | None:
    """The results in an annotation; ``None`` where it has none that can be read."""
    if len(text) > MOST_BYTES:
        return None
    try:
        found = msgspec.json.decode(text, type=VerifiedNode)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None
    return found if len(found.gpus) <= MOST_GPUS else None
