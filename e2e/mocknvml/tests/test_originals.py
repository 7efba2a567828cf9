"""Programs of others load the library: what the original device plugin imports is there."""

import ctypes
from collections.abc import Iterator
from pathlib import Path

import pytest

from mocknvml import build
from mocknvml.tests.conftest import Start
from mocknvml.tests.nvml_process import MIB

# Called by the bindings that the original device plugin of 2019 is linked with, which binds all
# symbols when it starts; its bindings' nvmlDeviceGetPciInfo is nvmlDeviceGetPciInfo_v3.
ORIGINAL = (
    "nvmlDeviceGetAccountingBufferSize",
    "nvmlDeviceGetAccountingMode",
    "nvmlDeviceGetBAR1MemoryInfo",
    "nvmlDeviceGetClockInfo",
    "nvmlDeviceGetComputeMode",
    "nvmlDeviceGetComputeRunningProcesses",
    "nvmlDeviceGetCount_v2",
    "nvmlDeviceGetCpuAffinity",
    "nvmlDeviceGetCudaComputeCapability",
    "nvmlDeviceGetCurrentClocksThrottleReasons",
    "nvmlDeviceGetDecoderUtilization",
    "nvmlDeviceGetDisplayActive",
    "nvmlDeviceGetDisplayMode",
    "nvmlDeviceGetEncoderUtilization",
    "nvmlDeviceGetGraphicsRunningProcesses",
    "nvmlDeviceGetHandleByIndex_v2",
    "nvmlDeviceGetMaxClockInfo",
    "nvmlDeviceGetMaxPcieLinkGeneration",
    "nvmlDeviceGetMaxPcieLinkWidth",
    "nvmlDeviceGetMemoryErrorCounter",
    "nvmlDeviceGetMemoryInfo",
    "nvmlDeviceGetMinorNumber",
    "nvmlDeviceGetName",
    "nvmlDeviceGetNvLinkState",
    "nvmlDeviceGetNvLinkRemotePciInfo_v2",
    "nvmlDeviceGetPciInfo_v3",
    "nvmlDeviceGetPcieThroughput",
    "nvmlDeviceGetPerformanceState",
    "nvmlDeviceGetPersistenceMode",
    "nvmlDeviceGetPowerManagementLimit",
    "nvmlDeviceGetPowerUsage",
    "nvmlDeviceGetTemperature",
    "nvmlDeviceGetTopologyCommonAncestor",
    "nvmlDeviceGetUUID",
    "nvmlDeviceGetUtilizationRates",
    "nvmlDeviceRegisterEvents",
    "nvmlErrorString",
    "nvmlEventSetCreate",
    "nvmlEventSetFree",
    "nvmlEventSetWait",
    "nvmlInit_v2",
    "nvmlShutdown",
    "nvmlSystemGetDriverVersion",
    "nvmlSystemGetProcessName",
)
FIGURES = [
    ("nvmlDeviceGetClockInfo", (1,), 1500),
    ("nvmlDeviceGetClockInfo", (2,), 5000),
    ("nvmlDeviceGetMaxClockInfo", (1,), 1500),
    ("nvmlDeviceGetApplicationsClock", (0,), 1500),
    ("nvmlDeviceGetPerformanceState", (), 0),
    ("nvmlDeviceGetCurrentClocksThrottleReasons", (), 0),
    ("nvmlDeviceGetPowerManagementLimit", (), 70_000),
    ("nvmlDeviceGetPowerManagementDefaultLimit", (), 70_000),
    ("nvmlDeviceGetMaxPcieLinkGeneration", (), 3),
    ("nvmlDeviceGetCurrPcieLinkGeneration", (), 3),
    ("nvmlDeviceGetMaxPcieLinkWidth", (), 16),
    ("nvmlDeviceGetCurrPcieLinkWidth", (), 16),
    ("nvmlDeviceGetPcieReplayCounter", (), 0),
    ("nvmlDeviceGetPcieThroughput", (1,), 0),
    ("nvmlDeviceGetDisplayMode", (), 0),
    ("nvmlDeviceGetDisplayActive", (), 0),
    ("nvmlDeviceGetAccountingMode", (), 0),
    ("nvmlDeviceGetAccountingBufferSize", (), 4000),
    ("nvmlDeviceGetEncoderUtilization", (), [0, 167_000]),
    ("nvmlDeviceGetDecoderUtilization", (), [0, 167_000]),
    ("nvmlDeviceGetBrand", (), 2),
]
XID = 8


class FirstProcess(ctypes.Structure):
    """A process as the first version of the calls reports it."""

    _fields_ = (("pid", ctypes.c_uint), ("memory", ctypes.c_ulonglong))


class FirstEvent(ctypes.Structure):
    """An event as the first version of the wait reports it."""

    _fields_ = (
        ("device", ctypes.c_void_p),
        ("type", ctypes.c_ulonglong),
        ("data", ctypes.c_ulonglong),
    )


@pytest.fixture
def loaded(
    library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[ctypes.CDLL, Path]]:
    """The library in this process, initialized, and the state file of its machine."""
    state = tmp_path / "state"
    state.touch()
    monkeypatch.setenv("GPUSHARE_MOCK_NVML_MACHINE", str(build.machine("t4-2x16")))
    monkeypatch.setenv("GPUSHARE_MOCK_NVML_STATE", str(state))
    found = ctypes.CDLL(str(library / build.LIBRARY))
    assert found.nvmlInit_v2() == 0
    yield found, state
    assert found.nvmlShutdown() == 0


def make_gpu(loaded: ctypes.CDLL, index: int) -> ctypes.c_void_p:
    handle = ctypes.c_void_p()
    assert loaded.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(handle)) == 0
    return handle


@pytest.mark.parametrize("symbol", ORIGINAL)
def test_what_the_original_plugin_imports_is_there(library: Path, symbol: str) -> None:
    """A program that binds its symbols at its start would not start without one of them."""
    assert hasattr(ctypes.CDLL(str(library / build.LIBRARY)), symbol)


def test_the_figures_that_monitors_read_are_answered(nvml: Start) -> None:
    """Clocks, limits, PCIe and the engines that nobody uses, of a T4 as its machine file has it."""
    worker = nvml("t4-2x16")
    gpu = worker.gpus()[0]
    answers = [worker.call(function, gpu, *arguments) for function, arguments, _ in FIGURES]
    assert answers == [expected for *_, expected in FIGURES]
    memory = worker.call("nvmlDeviceGetBAR1MemoryInfo", gpu)
    assert set(memory.values()) == {256 * MIB, 0}


def test_processes_of_the_first_version_are_the_same(loaded: tuple[ctypes.CDLL, Path]) -> None:
    """The first layout has no members for MIG; too small a buffer gets the number."""
    mock, _ = loaded
    count, infos = ctypes.c_uint(1), (FirstProcess * 4)()
    call = mock.nvmlDeviceGetComputeRunningProcesses
    insufficient = 7
    assert call(make_gpu(mock, 0), ctypes.byref(count), infos) == insufficient
    assert count.value == 2
    count.value = 4
    assert call(make_gpu(mock, 0), ctypes.byref(count), infos) == 0
    found = [(each.pid, each.memory // MIB) for each in infos[: count.value]]
    assert found == [(21034, 3743), (21877, 2201)]


def test_an_event_of_the_first_version_is_the_same(loaded: tuple[ctypes.CDLL, Path]) -> None:
    """The original plugin waits in the first layout for the XID errors of its GPUs."""
    mock, state = loaded
    events, event = ctypes.c_void_p(), FirstEvent()
    assert mock.nvmlEventSetCreate(ctypes.byref(events)) == 0
    first = make_gpu(mock, 0)
    assert mock.nvmlDeviceRegisterEvents(first, ctypes.c_ulonglong(XID), events) == 0
    state.write_text("xid 79 gpu 0\n")
    assert mock.nvmlEventSetWait(events, ctypes.byref(event), 30_000) == 0
    assert (event.device, event.type, event.data) == (first.value, XID, 79)
