"""Link matrices of known machines.

Links are those that NVIDIA's allocator tests and the 2019 user guide show. A comment at the machine
names what is not given there.
"""

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from gpucore.model.links import Matrix, merge
from gpucore.units import GpuIndex


class Machine(NamedTuple):
    """One known machine, with what people call it."""

    title: str
    matrix: Matrix


def _machine(gpus: int, links: Mapping[str, str], others: str = "SYS") -> Matrix:
    """The matrix from ``"NV1 PIX" -> "0-1 2-3"``; all pairs not named have ``others``."""
    named = {tuple(pair): names for names, pairs in links.items() for pair in _pairs(pairs)}
    every = ((a, b) for a in range(gpus) for b in range(a + 1, gpus))
    reports = [(pair, named.get(pair, others).split()) for pair in every]
    return merge(tuple(GpuIndex(gpu) for gpu in range(gpus)), reports)


def _pairs(text: str) -> Iterator[tuple[int, int]]:
    for word in text.split():
        a, _, b = word.partition("-")
        yield int(a), int(b)


DGX1_PASCAL: Final = Machine(
    "NVIDIA DGX-1 with P100",
    _machine(
        8,
        {
            "NV1 PHB": "0-1 0-3 1-2 2-3 4-5 4-7 5-6 6-7",
            "NV1 PIX": "0-2 1-3 4-6 5-7",
            "NV1 SYS": "0-4 1-5 2-6 3-7",
        },
    ),
)
DGX1_VOLTA: Final = Machine(
    "NVIDIA DGX-1 with V100",
    _machine(
        8,
        {
            "NV1 PIX": "0-1 4-5",
            "NV2 PIX": "2-3 6-7",
            "NV1 PHB": "0-2 1-3 4-6 5-7",
            "NV2 PHB": "0-3 1-2 4-7 5-6",
            "NV2 SYS": "0-4 1-5",
            "NV1 SYS": "2-6 3-7",
        },
    ),
)
DGX2: Final = Machine(
    # Six NVLinks to each of six switches, so any pair can use all six; the PCIe tree below it
    # (pairs, quads, a socket of eight) is taken from the maker's sets.
    "NVIDIA DGX-2 with 16 V100 and NVSwitch",
    _machine(
        16,
        {
            "NV6 PIX": "0-1 2-3 4-5 6-7 8-9 10-11 12-13 14-15",
            "NV6 PXB": " ".join(
                f"{base + a}-{base + b}" for base in (0, 4, 8, 12) for a in (0, 1) for b in (2, 3)
            ),
            "NV6 NODE": " ".join(
                f"{base + a}-{base + b}" for base in (0, 8) for a in range(4) for b in range(4, 8)
            ),
        },
        "NV6 SYS",
    ),
)
RTX8000: Final = Machine(
    # The pairs with a bridge come without a PCIe link in NVIDIA's table.
    "4 Quadro RTX 8000 in two NVLink bridges",
    _machine(4, {"NODE": "0-1 2-3", "SYS": "0-2 1-3", "NV2": "0-3 1-2"}),
)
V100_GUIDE: Final = Machine(
    # The 2019 format has one link a pair: NVLinks hide the PCIe path.
    "8 V100 of the 2019 user guide",
    _machine(
        8,
        {
            "NV1": "0-1 0-2 1-3 2-4 3-5 4-6 5-7 6-7",
            "NV2": "0-3 0-6 1-2 1-7 2-3 4-5 4-7 5-6",
        },
    ),
)
BRIDGES: Final = Machine(
    "8 GPUs in four NVLink bridges",
    _machine(8, {"NV4 SYS": "0-1 2-3 4-5 6-7"}),
)
PHB: Final = Machine("8 GPUs behind one host bridge", _machine(8, {}, "PHB"))

MACHINES: Final[Mapping[str, Machine]] = {
    "dgx1-pascal": DGX1_PASCAL,
    "dgx1-volta": DGX1_VOLTA,
    "dgx2": DGX2,
    "rtx8000-4": RTX8000,
    "v100-guide": V100_GUIDE,
    "bridges-8": BRIDGES,
    "phb-8": PHB,
}
"""All of them by a short name."""
