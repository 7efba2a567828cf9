"""Link matrices as text: the file format, and the node annotation of the 2019 plugin.

The file is ``{"gpus": 8, "links": {"0-1": ["PIX"], "0-3": ["NV2", "PHB"]}}``; a pair that is not
named has no link. ``"numa": [0, 0, 1, 1]`` optionally gives the NUMA node of each GPU.

The annotation is ``{"GPU_NV1_0_1": "Single NVLink", "GPU_SYS_0_4": "Cross CPU socket"}``. It has
one link a pair, so NVLinks hide the PCIe path; its writer had no abbreviation beyond four NVLinks
and wrote ``N-A``, where only the description has the number. An unreadable entry becomes a note of
the matrix, because one odd pair must not cost a node its other links.
"""

from collections.abc import Iterator, Mapping
from typing import Annotated, Final

import msgspec

from gpucore.model import Inventory
from gpucore.model.links import (
    MAX_NVLINKS,
    NO_LINK,
    PCIE,
    WORTH,
    Matrix,
    TopologyError,
    merge,
    nvlinks_of,
    pair_of,
)
from gpucore.units import GpuIndex
from gpucore.wire.names import NODE_TOPOLOGY

MAX_GPUS: Final = 64
"""GPUs a described machine may have: more than any has, few enough to draw."""

_ABSENT: Final = "N/A"
_COUNTS: Final = ("Single", "Two", "Three", "Four", "Five", "Six")
_PATHS: Final = {
    "SYS": "Cross CPU socket",
    "NODE": "Same CPU socket",
    "PHB": "Host PCI bridge",
    "PXB": "Multiple PCI switches",
    "PIX": "Single PCI switch",
    "PSB": "Same board",
}


def _nvlinks_text(count: int) -> str:
    word = _COUNTS[count - 1] if count <= len(_COUNTS) else str(count)
    return f"{word} NVLink{'s' if count > 1 else ''}"


_NVLINKS: Final = {f"NV{n}": _nvlinks_text(n) for n in range(1, MAX_NVLINKS + 1)}
DESCRIPTIONS: Final[Mapping[str, str]] = _PATHS | _NVLINKS
"""What the annotation calls each link."""

_ABBREVIATIONS: Final = {text: link for link, text in DESCRIPTIONS.items()}


class _Document(msgspec.Struct):
    gpus: Annotated[int, msgspec.Meta(ge=1, le=MAX_GPUS)]
    links: dict[str, tuple[str, ...]] = {}
    numa: list[int] = []


def decode_matrix(raw: bytes | str) -> Matrix:
    """Read either form.

    Raises:
        TopologyError: it is neither.
    """
    try:
        document = msgspec.json.decode(raw, type=dict[str, msgspec.Raw])
        if document and all(key.startswith("GPU_") for key in document):
            return decode_annotation(raw)
        return _from_document(msgspec.json.decode(raw, type=_Document))
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise TopologyError(f"no matrix: {error}") from error


def _from_document(document: _Document) -> Matrix:
    gpus = tuple(map(GpuIndex, range(document.gpus)))
    pairs = [(key, pair_of(key), links) for key, links in document.links.items()]
    notes = [f"{key!r} names no pair" for key, pair, _ in pairs if pair is None]
    reports = [(pair, links) for _, pair, links in pairs if pair is not None]
    return merge(gpus, reports, numa=dict(enumerate(document.numa[: len(gpus)])), notes=notes)


def decode_annotation(text: bytes | str, gpu_count: int = 0) -> Matrix:
    """Read the annotation of the 2019 plugin.

    Args:
        text: the annotation.
        gpu_count: number of the node's GPUs, where known; else the highest index decides.

    Raises:
        TopologyError: it is no JSON object of texts.
    """
    try:
        entries = msgspec.json.decode(text, type=dict[str, str])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise TopologyError(f"no {NODE_TOPOLOGY}: {error}") from error
    read = [(key, _entry(key, text)) for key, text in entries.items()]
    notes = [f"{key!r} names no pair" for key, entry in read if entry is None]
    reports = [entry for _, entry in read if entry is not None]
    highest = max((index for pair, _ in reports for index in pair), default=-1)
    gpus = tuple(map(GpuIndex, range(max(gpu_count, highest + 1))))
    return merge(gpus, reports, notes=notes)


def _entry(key: str, text: str) -> tuple[tuple[int, int], tuple[str, ...]] | None:
    """``GPU_<ABBR>_<i>_<j>`` and its description as a report; ``None`` where it is no such key."""
    parts = key.split("_")
    pair = pair_of("-".join(parts[2:])) if len(parts) == 4 and parts[0] == "GPU" else None
    if pair is None or max(pair) >= MAX_GPUS:
        return None
    link = parts[1] if parts[1] in WORTH else _ABBREVIATIONS.get(text, parts[1])
    return pair, (link,)


def encode_annotation(matrix: Matrix) -> str:
    """The annotation as the 2019 plugin writes it, one entry for each pair."""
    return msgspec.json.encode(dict(_entries(matrix))).decode()


def _entries(matrix: Matrix) -> Iterator[tuple[str, str]]:
    for i, a in enumerate(matrix.gpus):
        for b in matrix.gpus[i + 1 :]:
            link = shown(matrix, a, b)
            yield f"GPU_{link}_{a}_{b}", DESCRIPTIONS.get(link, _ABSENT)


def shown(matrix: Matrix, a: int, b: int) -> str:
    """The one link that stands for a pair: its NVLinks if it has any, else its PCIe path."""
    links = matrix.between(a, b)
    nvlinks = min(nvlinks_of(links), MAX_NVLINKS)
    if nvlinks:
        return f"NV{nvlinks}"
    return max((link for link in links if link in PCIE), key=PCIE.__getitem__, default=NO_LINK)


def matrix_of(inventory: Inventory) -> Matrix:
    """The matrix of a node's inventory; odd entries become notes, never errors."""
    gpus = tuple(sorted(gpu.index for gpu in inventory.gpus))
    reports = [
        (pair, names)
        for key, names in inventory.links.items()
        if (pair := pair_of(key)) is not None
    ]
    lost = [f"{key!r} names no pair" for key in inventory.links if pair_of(key) is None]
    numa = {int(gpu.index): gpu.numa for gpu in inventory.gpus if gpu.numa >= 0}
    linked = len({index for pair, _ in reports for index in pair})
    if linked > MAX_GPUS:
        sentence = f"links of {linked} GPUs are ignored: a machine has {MAX_GPUS} at most"
        return Matrix(gpus, numa=numa, notes=(sentence,))
    return merge(gpus, reports, numa=numa, notes=lost)


def joined(inventory: Inventory, text: str | None) -> Matrix:
    """The matrix of an inventory, or, where that has no links, of the 2019 annotation ``text``."""
    matrix = matrix_of(inventory)
    if matrix.links or not text:
        return matrix
    try:
        old = decode_annotation(text, len(matrix.gpus))
    except TopologyError as error:
        return msgspec.structs.replace(matrix, notes=(*matrix.notes, str(error)))
    return old.part(matrix.gpus)
