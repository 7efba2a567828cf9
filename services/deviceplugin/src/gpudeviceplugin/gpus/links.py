"""The links of a GPU as the driver reports them, and the link of each pair of GPUs by both reports.

A link that is not reported is no link; a GPU whose report is missing has none.
"""

from collections.abc import Iterator, Mapping
from itertools import combinations

import msgspec


class GpuLinks(msgspec.Struct, frozen=True):
    """The links of one GPU.

    Attributes:
        bus: its PCI bus id; empty unknown.
        direct: number of NVLinks to other GPUs, by their bus ids.
        switched: number of NVLinks to switches.
        paths: PCIe paths to other GPUs, such as ``PIX``, by their indexes.
    """

    bus: str = ""
    direct: Mapping[str, int] = {}
    switched: int = 0
    paths: Mapping[int, str] = {}


def links_of_pairs(reports: Mapping[int, GpuLinks]) -> dict[str, tuple[str, ...]]:
    """The link of each pair: PCIe, and the NVLinks that both GPUs report; ``"0-1" -> ("PIX",)``."""
    pairs = combinations(sorted(reports), 2)
    found = {f"{a}-{b}": tuple(_kinds(a, b, reports)) for a, b in pairs}
    return {pair: kinds for pair, kinds in found.items() if kinds}


def _kinds(first: int, second: int, reports: Mapping[int, GpuLinks]) -> Iterator[str]:
    one, other = reports[first], reports[second]
    path = one.paths.get(second) or other.paths.get(first)
    if path:
        yield path
    direct = min(one.direct.get(other.bus, 0), other.direct.get(one.bus, 0))
    switched = min(one.switched, other.switched)
    if direct + switched:
        yield f"NV{direct + switched}"
