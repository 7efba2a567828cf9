"""Every shipped machine, read back through the real pynvml."""

import itertools
from dataclasses import dataclass

import pytest

from mocknvml import build
from mocknvml.tests.conftest import Start
from mocknvml.tests.nvml_process import MIB, Handle, NvmlFailure, NvmlProcess

pytestmark = pytest.mark.slow

SHIPPED = sorted(path.stem for path in build.MACHINES.glob("*.machine"))
PIX, PHB, NODE, SYS = 10, 30, 40, 50


@dataclass(frozen=True, kw_only=True)
class ExpectedGpu:
    """What a machine must report: GPUs, their names, MiB where MIG is off, and driver."""

    names: tuple[str, ...]
    memory_mib: tuple[int, ...]
    driver: str


EXPECTED = {
    "t4-2x16": ExpectedGpu(names=("Tesla T4",) * 2, memory_mib=(16130,) * 2, driver="418.87.01"),
    "a100-pcie-4x40": ExpectedGpu(
        names=("NVIDIA A100-PCIE-40GB",) * 4, memory_mib=(40960,) * 4, driver="535.161.08"
    ),
    "a100-mig-2x40": ExpectedGpu(
        names=("NVIDIA A100-SXM4-40GB",) * 2, memory_mib=(40960,), driver="535.161.08"
    ),
    "dgx1-volta": ExpectedGpu(
        names=("Tesla V100-SXM2-16GB",) * 8, memory_mib=(16160,) * 8, driver="450.80.02"
    ),
    "dgx1-pascal": ExpectedGpu(
        names=("Tesla P100-SXM2-16GB",) * 8, memory_mib=(16280,) * 8, driver="450.80.02"
    ),
    "h100-nvswitch-8x80": ExpectedGpu(
        names=("NVIDIA H100 80GB HBM3",) * 8, memory_mib=(81559,) * 8, driver="535.161.08"
    ),
    "h200-8x141": ExpectedGpu(
        names=("NVIDIA H200",) * 8, memory_mib=(143771,) * 8, driver="550.90.07"
    ),
    "h100-r615-2x80": ExpectedGpu(
        names=("NVIDIA H100 PCIe",) * 2, memory_mib=(81559,) * 2, driver="615.36.01"
    ),
    "nvlink-bridge-8x48": ExpectedGpu(
        names=("NVIDIA RTX A6000",) * 8, memory_mib=(49140,) * 8, driver="535.161.08"
    ),
    "mixed-t4-a100": ExpectedGpu(
        names=("Tesla T4", "NVIDIA A100-PCIE-40GB"), memory_mib=(16130, 40960), driver="535.161.08"
    ),
}

# How many NVLinks each pair of GPUs has.
VOLTA_NVLINKS = {
    **dict.fromkeys([(0, 1), (0, 2), (1, 3), (4, 5), (4, 6), (5, 7), (2, 6), (3, 7)], 1),
    **dict.fromkeys([(0, 3), (1, 2), (2, 3), (4, 7), (5, 6), (6, 7), (0, 4), (1, 5)], 2),
}
PASCAL_NVLINKS = {
    pair: 1
    for pair in itertools.combinations(range(8), 2)
    if pair[0] // 4 == pair[1] // 4 or pair[1] - pair[0] == 4
}
NVLINKS = {
    "dgx1-volta": VOLTA_NVLINKS,
    "dgx1-pascal": PASCAL_NVLINKS,
    "nvlink-bridge-8x48": {(0, 1): 4, (2, 3): 4, (4, 5): 4, (6, 7): 4},
    "a100-mig-2x40": {(0, 1): 12},
}


def direct_nvlinks(worker: NvmlProcess, gpus: list[Handle]) -> dict[tuple[int, int], int]:
    """Count the active links from GPU to GPU by following each to its far end's PCI address."""
    index_of = {
        worker.call("nvmlDeviceGetPciInfo", gpu)["busId"]: index for index, gpu in enumerate(gpus)
    }
    counts: dict[tuple[int, int], int] = {}
    for index, gpu in enumerate(gpus):
        for link in range(36):
            if not is_active(worker, gpu, link):
                continue
            if worker.call("nvmlDeviceGetNvLinkRemoteDeviceType", gpu, link) != 0:
                continue
            far = worker.call("nvmlDeviceGetNvLinkRemotePciInfo", gpu, link)["busId"]
            pair = (index, index_of[far])
            counts[pair] = counts.get(pair, 0) + 1
    return counts


def is_active(worker: NvmlProcess, gpu: Handle, link: int) -> bool:
    """Ask for a link the way every NVML program does: an error means there is none."""
    try:
        return bool(worker.call("nvmlDeviceGetNvLinkState", gpu, link))
    except NvmlFailure as failure:
        if failure.name not in {"NVMLError_NotSupported", "NVMLError_InvalidArgument"}:
            raise
        return False


def in_mig_mode(worker: NvmlProcess, gpu: Handle) -> bool:
    """Whether MIG is on; GPUs without MIG answer that it is not supported."""
    try:
        return bool(worker.call("nvmlDeviceGetMigMode", gpu)[0])
    except NvmlFailure:
        return False


def test_every_machine_has_an_expectation() -> None:
    """No machine is shipped that these tests do not know."""
    assert set(EXPECTED) == set(SHIPPED)


@pytest.mark.parametrize("name", SHIPPED)
def test_machine_round_trips(nvml: Start, name: str) -> None:
    """What the description has of GPUs and driver is what pynvml reports."""
    worker = nvml(name)
    gpus = worker.gpus()
    expected = EXPECTED[name]
    whole = [gpu for gpu in gpus if not in_mig_mode(worker, gpu)]
    memory = [worker.call("nvmlDeviceGetMemoryInfo", gpu) for gpu in whole]

    assert worker.call("nvmlSystemGetDriverVersion") == expected.driver
    assert tuple(worker.call("nvmlDeviceGetName", gpu) for gpu in gpus) == expected.names
    assert tuple(info["total"] // MIB for info in memory) == expected.memory_mib
    assert all(info["used"] + info["free"] == info["total"] for info in memory)


@pytest.mark.parametrize("name", SHIPPED)
def test_gpus_are_distinguished(nvml: Start, name: str) -> None:
    """UUID, minor, PCI address and serial differ from GPU to GPU, and lead back to their GPU."""
    worker = nvml(name)
    gpus = worker.gpus()
    for lookup, read in (
        ("nvmlDeviceGetHandleByUUID", "nvmlDeviceGetUUID"),
        ("nvmlDeviceGetHandleBySerial", "nvmlDeviceGetSerial"),
    ):
        keys = [worker.call(read, gpu) for gpu in gpus]
        found = [worker.call(lookup, key) for key in keys]
        assert len(set(keys)) == len(gpus)
        assert [worker.call("nvmlDeviceGetIndex", gpu) for gpu in found] == list(range(len(gpus)))
    buses = [worker.call("nvmlDeviceGetPciInfo", gpu)["busId"] for gpu in gpus]
    assert [
        worker.call("nvmlDeviceGetIndex", worker.call("nvmlDeviceGetHandleByPciBusId", bus))
        for bus in buses
    ] == list(range(len(gpus)))
    minors = {worker.call("nvmlDeviceGetMinorNumber", gpu) for gpu in gpus}
    assert minors == set(range(len(gpus)))


@pytest.mark.parametrize("name", SHIPPED)
def test_links_are_symmetric(nvml: Start, name: str) -> None:
    """Two GPUs agree on their PCIe distance, their peer access and the number of their NVLinks."""
    worker = nvml(name)
    gpus = worker.gpus()
    nvlinks = direct_nvlinks(worker, gpus)
    for one, two in itertools.permutations(range(len(gpus)), 2):
        for question, *more in (
            ("nvmlDeviceGetTopologyCommonAncestor",),
            ("nvmlDeviceGetP2PStatus", 2),
        ):
            there = worker.call(question, gpus[one], gpus[two], *more)
            assert there == worker.call(question, gpus[two], gpus[one], *more)
        assert nvlinks.get((one, two), 0) == nvlinks.get((two, one), 0)


@pytest.mark.parametrize("name", SHIPPED)
def test_nvlinks_are_those_of_the_machine(nvml: Start, name: str) -> None:
    """Following every link from GPU to GPU finds exactly the pairs and counts of the machine."""
    worker = nvml(name)
    found = direct_nvlinks(worker, worker.gpus())
    assert {pair: n for pair, n in found.items() if pair[0] < pair[1]} == NVLINKS.get(name, {})


def test_volta_pcie_levels(nvml: Start) -> None:
    """A DGX-1 has neighbours below one switch, quads below one host bridge, and two sockets."""
    worker = nvml("dgx1-volta")
    gpus = worker.gpus()

    def level(one: int, two: int) -> int:
        answer: int = worker.call("nvmlDeviceGetTopologyCommonAncestor", gpus[one], gpus[two])
        return answer

    assert [level(0, n) for n in range(1, 8)] == [PIX, PHB, PHB, SYS, SYS, SYS, SYS]
    assert [level(6, n) for n in (2, 4, 5, 7)] == [SYS, PHB, PHB, PIX]


@pytest.mark.parametrize("name", ["h100-nvswitch-8x80", "h200-8x141"])
def test_nvswitch_machine_links_to_switches(nvml: Start, name: str) -> None:
    """Behind NVSwitches all 18 links of a GPU end at switches, and any pair has NVLink access."""
    worker = nvml(name)
    gpus = worker.gpus()
    far = [worker.call("nvmlDeviceGetNvLinkRemotePciInfo", gpus[7], link) for link in range(18)]
    types = [worker.call("nvmlDeviceGetNvLinkRemoteDeviceType", gpus[7], n) for n in range(18)]
    fabric = worker.fill(
        "nvmlDeviceGetGpuFabricInfoV", gpus[7], {"struct": "c_nvmlGpuFabricInfo_v2_t"}
    )

    assert types == [2] * 18
    assert len({pci["busId"] for pci in far}) == 4
    assert worker.call("nvmlDeviceGetTopologyCommonAncestor", gpus[0], gpus[1]) == NODE
    assert worker.call("nvmlDeviceGetP2PStatus", gpus[0], gpus[7], 2) == 0
    assert (fabric["state"], fabric["status"]) == (3, 0)


def test_minor_is_not_the_index(nvml: Start) -> None:
    """On the mixed machine GPU 0 is /dev/nvidia1: whoever confuses the two is found out."""
    worker = nvml("mixed-t4-a100")
    gpus = worker.gpus()
    assert [worker.call("nvmlDeviceGetIndex", gpu) for gpu in gpus] == [0, 1]
    assert [worker.call("nvmlDeviceGetMinorNumber", gpu) for gpu in gpus] == [1, 0]
