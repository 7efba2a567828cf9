"""What a GPU reports beyond its identity: memory, processes, MIG, modes, places."""

import os
from typing import Any

import pytest

from mocknvml.tests.conftest import Start
from mocknvml.tests.nvml_process import MIB

pytestmark = pytest.mark.slow

NOT_SUPPORTED = "NVMLError_NotSupported"


def test_processes_and_their_memory_agree(nvml: Start) -> None:
    """The memory a GPU has in use is that of its processes, and its load is the sum of theirs."""
    worker = nvml("t4-2x16")
    busy, idle = worker.gpus()
    processes = worker.call("nvmlDeviceGetComputeRunningProcesses", busy)
    samples = worker.call("nvmlDeviceGetProcessUtilization", busy, 0)
    rates = worker.call("nvmlDeviceGetUtilizationRates", busy)

    assert [p["pid"] for p in processes] == [21034, 21877]
    assert [p["usedGpuMemory"] // MIB for p in processes] == [3743, 2201]
    assert worker.call("nvmlDeviceGetMemoryInfo", busy)["used"] == (3743 + 2201) * MIB
    assert worker.call("nvmlSystemGetProcessName", 21034) == "tensorflow_model_server"
    assert sum(sample["smUtil"] for sample in samples) == rates["gpu"] == 29
    assert worker.call("nvmlDeviceGetComputeRunningProcesses", idle) == []
    assert worker.failure("nvmlDeviceGetProcessUtilization", idle, 0) == "NVMLError_NotFound"


def test_kinds_of_processes_are_distinguished(nvml: Start) -> None:
    """Compute, graphics and MPS processes are listed each by its own function."""
    worker = nvml(
        text="""[gpu 0]
name = Tesla T4
uuid = GPU-84bc6439-fa3f-4477-8cd2-a7a3d5d9f18f
memory_mib = 16130
pci = 00000000:3B:00.0
[processes]
gpu 0: pid 1 used_mib 10 name compute
gpu 0: pid 2 used_mib 20 type graphics name Xorg
gpu 0: pid 3 used_mib 30 type mps name client
"""
    )
    gpu = worker.gpus()[0]
    for kind, pid in (("Compute", 1), ("Graphics", 2), ("MPSCompute", 3)):
        found = worker.call(f"nvmlDeviceGet{kind}RunningProcesses_v3", gpu)
        assert [process["pid"] for process in found] == [pid]


def test_a_driver_may_tell_a_caller_only_of_processes_of_its_pid_namespace(nvml: Start) -> None:
    """Their memory is in use all the same; so it is with the kernel modules of today."""
    worker = nvml("t4-2x16")
    idle = worker.gpus()[1]
    me = os.getpid()
    worker.state.write_text(
        f"driver lists_pid_namespace\ngpu 1 process pid {me} used_mib 512 sm 40 name trainer\n"
        "gpu 1 process pid 4194305 used_mib 30 sm 9 name other\n"
    )
    processes = worker.call("nvmlDeviceGetComputeRunningProcesses", idle)
    assert [process["pid"] for process in processes] == [me]
    samples = worker.call("nvmlDeviceGetProcessUtilization", idle, 0)
    assert [sample["pid"] for sample in samples] == [me]
    assert worker.call("nvmlDeviceGetMemoryInfo", idle)["used"] == 542 * MIB


def test_a_process_without_work_has_no_sample_of_its_utilization(nvml: Start) -> None:
    """It is listed with its memory all the same."""
    worker = nvml("t4-2x16")
    idle = worker.gpus()[1]
    worker.state.write_text(
        "gpu 1 process pid 7 used_mib 512 name idle\n"
        "gpu 1 process pid 8 used_mib 30 sm 9 name busy\n"
    )
    samples = worker.call("nvmlDeviceGetProcessUtilization", idle, 0)
    assert [(sample["pid"], sample["smUtil"]) for sample in samples] == [(8, 9)]


def test_processes_come_and_go_with_the_state_file(nvml: Start) -> None:
    """A line adds a process, with its memory; when the line goes, so do they."""
    worker = nvml("t4-2x16")
    idle = worker.gpus()[1]
    worker.state.write_text(
        "gpu 1 process pid 7 used_mib 512 sm 5 name trainer\n"
        "gpu 1 process pid 8 used_mib 30 type mps name client\n"
    )
    for kind, pid in (("Compute", 7), ("MPSCompute", 8)):
        found = worker.call(f"nvmlDeviceGet{kind}RunningProcesses_v3", idle)
        assert [process["pid"] for process in found] == [pid]
    assert worker.call("nvmlDeviceGetMemoryInfo", idle)["used"] == 542 * MIB
    assert worker.call("nvmlDeviceGetUtilizationRates", idle)["gpu"] == 5
    assert worker.call("nvmlSystemGetProcessName", 7) == "trainer"
    worker.state.write_text("")
    assert worker.call("nvmlDeviceGetMemoryInfo", idle)["used"] == 0


def test_reserved_memory_is_in_both_layouts(nvml: Start) -> None:
    """Version 2 shows reserved memory apart, version 1 counts it as used; totals are equal."""
    worker = nvml("h100-nvswitch-8x80")
    gpu = worker.gpus()[0]
    first = worker.call("nvmlDeviceGetMemoryInfo", gpu)
    second = worker.call("nvmlDeviceGetMemoryInfo", gpu, 0x02000028)
    assert second["reserved"] == first["used"] == 551 * MIB
    assert (second["used"], second["free"], second["total"]) == (0, first["free"], first["total"])


def test_mig_devices(nvml: Start) -> None:
    """A GPU with MIG on hands out its devices with uuid, instance ids, memory and attributes."""
    worker = nvml("a100-mig-2x40")
    cut, whole = worker.gpus()
    assert worker.call("nvmlDeviceGetMigMode", cut) == [1, 1]
    assert worker.call("nvmlDeviceGetMigMode", whole) == [0, 0]
    assert worker.call("nvmlDeviceGetMaxMigDeviceCount", cut) == 7
    mig = [worker.call("nvmlDeviceGetMigDeviceHandleByIndex", cut, n) for n in range(3)]
    assert worker.failure("nvmlDeviceGetMigDeviceHandleByIndex", cut, 3) == "NVMLError_NotFound"
    assert worker.failure("nvmlDeviceGetMigDeviceHandleByIndex", whole, 0) == "NVMLError_NotFound"

    assert [worker.call("nvmlDeviceGetGpuInstanceId", device) for device in mig] == [2, 3, 9]
    assert [worker.call("nvmlDeviceGetComputeInstanceId", device) for device in mig] == [0, 0, 0]
    names = [worker.call("nvmlDeviceGetName", device) for device in mig]
    assert names[1] == "NVIDIA A100-SXM4-40GB MIG 2g.10gb"
    attributes = worker.call("nvmlDeviceGetAttributes", mig[0])
    assert (attributes["memorySizeMB"], attributes["gpuInstanceSliceCount"]) == (19968, 3)
    assert worker.call("nvmlDeviceGetMemoryInfo", mig[1])["used"] == 1207 * MIB
    assert len(worker.call("nvmlDeviceGetComputeRunningProcesses", mig[1])) == 1
    assert worker.call("nvmlDeviceGetComputeRunningProcesses", mig[0]) == []


@pytest.mark.parametrize(
    "arguments",
    [
        ("nvmlDeviceGetMemoryInfo",),
        ("nvmlDeviceGetMemoryInfo", 0x02000028),
        ("nvmlDeviceGetComputeRunningProcesses",),
        ("nvmlDeviceGetMPSComputeRunningProcesses",),
    ],
    ids=["memory", "memory 2", "processes", "clients of MPS"],
)
def test_sums_of_a_gpu_in_mig_mode_need_privileges(nvml: Start, arguments: tuple[Any, ...]) -> None:
    """Memory and processes of all its MIG devices together; each of these answers by itself."""
    worker = nvml("a100-mig-2x40")
    cut, whole = worker.gpus()
    function, *more = arguments
    assert worker.failure(function, cut, *more) == "NVMLError_NoPermission"
    worker.call(function, whole, *more)
    worker.call(function, worker.call("nvmlDeviceGetMigDeviceHandleByIndex", cut, 0), *more)


def test_mig_handles_know_what_they_are(nvml: Start) -> None:
    """A MIG device is found by uuid, leads to its GPU, and is refused in queries of GPUs."""
    worker = nvml("a100-mig-2x40")
    cut = worker.gpus()[0]
    mig = worker.call("nvmlDeviceGetMigDeviceHandleByIndex", cut, 2)
    uuid = worker.call("nvmlDeviceGetUUID", mig)
    again = worker.call("nvmlDeviceGetHandleByUUID", uuid)
    parent = worker.call("nvmlDeviceGetDeviceHandleFromMigDeviceHandle", again)
    assert uuid.startswith("MIG-")
    assert worker.call("nvmlDeviceIsMigDeviceHandle", again) == 1
    assert worker.call("nvmlDeviceIsMigDeviceHandle", cut) == 0
    assert worker.call("nvmlDeviceGetUUID", parent) == worker.call("nvmlDeviceGetUUID", cut)
    assert worker.failure("nvmlDeviceGetMinorNumber", mig) == NOT_SUPPORTED
    assert worker.failure("nvmlDeviceGetUtilizationRates", cut) == NOT_SUPPORTED


def test_a_gpu_without_mig_or_nvlink_reports_that(nvml: Start) -> None:
    """What a T4 cannot do is not supported, or counted as none."""
    worker = nvml("mixed-t4-a100")
    gpu = worker.gpus()[0]
    assert worker.failure("nvmlDeviceGetMigMode", gpu) == NOT_SUPPORTED
    assert worker.call("nvmlDeviceGetMaxMigDeviceCount", gpu) == 0
    assert worker.failure("nvmlDeviceGetNvLinkState", gpu, 0) == NOT_SUPPORTED
    fabric = {"struct": "c_nvmlGpuFabricInfo_v2_t"}
    assert worker.failure("nvmlDeviceGetGpuFabricInfoV", gpu, fabric) == NOT_SUPPORTED
    assert worker.failure("nvmlDeviceGetNumaNodeId", gpu) == NOT_SUPPORTED


def test_compute_mode_is_the_machines(nvml: Start, start: Start) -> None:
    """A compute mode set by one process holds for the next, as a driver's does."""
    first = nvml("a100-pcie-4x40", state="gpu 3 recovered")  # no line end: must not be spoilt
    gpu = first.gpus()[2]
    assert first.call("nvmlDeviceGetComputeMode", gpu) == 0
    first.call("nvmlDeviceSetComputeMode", gpu, 3)
    assert first.failure("nvmlDeviceSetComputeMode", gpu, 1) == NOT_SUPPORTED
    kept = first.state.read_text()
    second = nvml("a100-pcie-4x40", state=kept)
    modes = [second.call("nvmlDeviceGetComputeMode", device) for device in second.gpus()]
    assert kept == "gpu 3 recovered\ngpu 2 compute_mode exclusive-process\n"
    assert modes == [0, 0, 3, 0]


def test_places_in_the_machine(nvml: Start) -> None:
    """A GPU names the NUMA node and the CPUs of its own socket."""
    worker = nvml("dgx1-volta")
    far = worker.gpus()[5]
    cpus = worker.call("nvmlDeviceGetCpuAffinity", far, 2)
    wanted = [*range(20, 40), *range(60, 80)]
    assert worker.call("nvmlDeviceGetMemoryAffinity", far, 1, 0) == [1 << 1]
    assert [cpu for cpu in range(128) if cpus[cpu // 64] >> cpu % 64 & 1] == wanted


def test_sensors_and_constants(nvml: Start) -> None:
    """Temperature, power, ECC, architecture and PCI ids are those of the description."""
    worker = nvml("dgx1-volta")
    gpu = worker.gpus()[0]
    pci = worker.call("nvmlDeviceGetPciInfo", gpu)
    extended = worker.fill(
        "nvmlDeviceGetPciInfoExt", gpu, {"struct": "nvmlPciInfoExt_v1_t", "version": 0x1000040}
    )
    assert worker.call("nvmlDeviceGetTemperature", gpu, 0) == 36
    assert worker.call("nvmlDeviceGetTemperatureV1", gpu, 0) == 36
    assert worker.call("nvmlDeviceGetPowerUsage", gpu) == 43000
    assert worker.call("nvmlDeviceGetEnforcedPowerLimit", gpu) == 300000
    assert worker.call("nvmlDeviceGetEccMode", gpu) == [1, 1]
    assert worker.call("nvmlDeviceGetTotalEccErrors", gpu, 0, 1) == 0
    assert worker.call("nvmlDeviceGetPersistenceMode", gpu) == 1
    assert worker.call("nvmlDeviceGetCudaComputeCapability", gpu) == [7, 0]
    assert worker.call("nvmlDeviceGetArchitecture", gpu) == 5
    assert worker.call("nvmlDeviceGetNvLinkVersion", gpu, 0) == 2
    assert worker.call("nvmlDeviceGetNvLinkCapability", gpu, 0, 0) == 1
    assert (pci["busIdLegacy"], pci["busId"]) == ("0000:06:00.0", "00000000:06:00.0")
    assert extended["pciDeviceId"] == pci["pciDeviceId"] == 0x1DB110DE


def test_boards(nvml: Start) -> None:
    """GPUs on boards of their own have different board ids and are not on one board."""
    worker = nvml("t4-2x16")
    one, two = worker.gpus()
    assert worker.call("nvmlDeviceGetBoardId", one) != worker.call("nvmlDeviceGetBoardId", two)
    assert worker.call("nvmlDeviceGetMultiGpuBoard", one) == 0
    assert worker.call("nvmlDeviceOnSameBoard", one, two) is False
