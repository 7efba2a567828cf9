"""Single questions to NVML: what an answer or an error of the library becomes."""

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pynvml
import pytest
from fakedriver import hardware_of

from gpudeviceplugin.gpus.devices import (
    DriverError,
    DriverUnavailableError,
    GpuLostError,
    RecoveryNeededError,
    Xid,
)
from gpudeviceplugin.gpus.nvml import Nvml
from gpudeviceplugin.gpus.nvml_hardware import MIB, NUMA_BITS

HANDLE = object()
Patch = pytest.MonkeyPatch


def answers(patch: Patch, **functions: Any) -> None:
    """Functions of the library answer with these values; an error code is raised."""
    for name, value in functions.items():
        patch.setattr(f"gpudeviceplugin.gpus.nvml.pynvml.nvml{name}", _answering(value, name))


def _answering(value: Any, name: str) -> Any:
    def answer(*arguments: Any) -> Any:
        found = value(*arguments) if callable(value) else value
        if isinstance(found, Exception):
            raise found
        return found

    answer.__name__ = f"nvml{name}"
    return answer


def failure(code: int) -> pynvml.NVMLError:
    return pynvml.NVMLError(code)


MISSING = failure(pynvml.NVML_ERROR_NOT_SUPPORTED)
NO_RECOVERY: Mapping[str, Any] = dict.fromkeys(
    (
        "DeviceGetDeviceHandleFromMigDeviceHandle",
        "DeviceGetFieldValues",
        "DeviceGetRemappedRows",
    ),
    MISSING,
)
"""A driver that reports nothing about the recovery of a GPU."""


@pytest.mark.parametrize(
    ("code", "error"),
    [
        (pynvml.NVML_ERROR_DRIVER_NOT_LOADED, DriverUnavailableError),
        (pynvml.NVML_ERROR_UNINITIALIZED, DriverUnavailableError),
        (pynvml.NVML_ERROR_GPU_IS_LOST, GpuLostError),
        (pynvml.NVML_ERROR_UNKNOWN, GpuLostError),
        (pynvml.NVML_ERROR_NOT_FOUND, GpuLostError),
        (pynvml.NVML_ERROR_NO_PERMISSION, GpuLostError),
    ],
)
def test_a_gpu_that_cannot_be_found_is_gone_unless_the_driver_is(
    monkeypatch: Patch, code: int, error: type[Exception]
) -> None:
    """Its uuid is unknown, or it does not respond; without a driver nothing is known of it."""
    answers(monkeypatch, DeviceGetHandleByUUID=failure(code))
    with pytest.raises(DriverError) as raised:
        Nvml().probe("GPU-0")
    assert type(raised.value) is error
    assert "nvmlDeviceGetHandleByUUID" in str(raised.value)


@pytest.mark.parametrize(
    ("code", "error"),
    [
        (pynvml.NVML_ERROR_NOT_SUPPORTED, None),
        (pynvml.NVML_ERROR_FUNCTION_NOT_FOUND, None),
        (pynvml.NVML_ERROR_NO_PERMISSION, None),
        (pynvml.NVML_ERROR_GPU_IS_LOST, GpuLostError),
        (pynvml.NVML_ERROR_UNINITIALIZED, DriverUnavailableError),
    ],
)
def test_a_probe_fails_for_a_lost_gpu_and_not_for_a_missing_feature(
    monkeypatch: Patch, code: int, error: type[Exception] | None
) -> None:
    """An old driver answers what it can."""
    failing = {"DeviceGetHandleByUUID": HANDLE, "DeviceGetMemoryInfo": failure(code)}
    answers(monkeypatch, **(NO_RECOVERY | failing))
    if error is None:
        Nvml().probe("GPU-0")
    else:
        with pytest.raises(error):
            Nvml().probe("GPU-0")


def field_value(value: int, code: int = pynvml.NVML_SUCCESS) -> list[Any]:
    """The answer of NVML about one field, with the error of this field alone."""
    return [SimpleNamespace(nvmlReturn=code, value=SimpleNamespace(uiVal=value))]


def probed(patch: Patch, **more: Any) -> bool:
    """Probe a GPU that responds."""
    sound = {"DeviceGetHandleByUUID": HANDLE, "DeviceGetMemoryInfo": None}
    answers(patch, **(NO_RECOVERY | sound | more))
    return Nvml().probe("GPU-0")


@pytest.mark.parametrize(
    ("action", "words"),
    [
        (1, "a reset of the GPU"),
        (2, "a reboot of the node"),
        (3, "the end of all peer-to-peer traffic"),
        (4, "a reset of the GPU once its pods have ended"),
        (6, "a reset of the GPU's bus"),
        (7, "a reboot of the whole system"),
        (99, "recovery action 99 of NVML"),
    ],
)
def test_any_recovery_that_a_gpu_needs_fails_its_probe(
    monkeypatch: Patch, action: int, words: str
) -> None:
    """Also one that is newer than the binding."""
    with pytest.raises(RecoveryNeededError) as raised:
        probed(monkeypatch, DeviceGetFieldValues=field_value(action))
    assert str(raised.value) == words


def test_a_recovery_of_the_imex_domain_leaves_the_gpu_in_use(monkeypatch: Patch) -> None:
    """A share needs no IMEX; with drivers before 610 the number means a reset of the bus."""
    imex = {"DeviceGetFieldValues": field_value(5)}
    assert probed(monkeypatch, **imex, SystemGetDriverVersion="610.43.01")
    for older in ("580.159.04", failure(pynvml.NVML_ERROR_UNKNOWN)):
        with pytest.raises(RecoveryNeededError, match="a reset of the GPU's bus"):
            probed(monkeypatch, **imex, SystemGetDriverVersion=older)


def test_a_recovery_is_sound_only_if_the_driver_reports_it(monkeypatch: Patch) -> None:
    """An error of the field alone is as unknown as that of a driver without the function."""
    not_supported = pynvml.NVML_ERROR_NOT_SUPPORTED
    assert probed(monkeypatch, DeviceGetFieldValues=field_value(0))
    assert not probed(monkeypatch, DeviceGetFieldValues=field_value(1, not_supported))
    assert not probed(monkeypatch)
    assert not probed(monkeypatch, DeviceGetFieldValues=failure(pynvml.NVML_ERROR_UNKNOWN))


def test_an_instance_needs_the_recovery_of_its_gpu(monkeypatch: Patch) -> None:
    """NVML has the field of physical GPUs only."""
    parent = object()
    queried = []

    def fields(handle: Any, _: Any) -> Any:
        queried.append(handle)
        return field_value(0)

    assert probed(
        monkeypatch,
        DeviceGetDeviceHandleFromMigDeviceHandle=parent,
        DeviceGetFieldValues=fields,
    )
    assert queried == [parent]


def test_a_row_that_cannot_be_remapped_fails_the_probe_and_one_that_waits_does_not(
    monkeypatch: Patch,
) -> None:
    """The former GPU has to be replaced; on the latter new programs run correctly."""
    assert not probed(monkeypatch, DeviceGetRemappedRows=(0, 1, 1, 0))
    with pytest.raises(RecoveryNeededError, match="cannot be remapped"):
        probed(monkeypatch, DeviceGetRemappedRows=(0, 8, 0, 1))
    for action, words in ((0, "cannot be remapped"), (1, "a reset of the GPU")):
        reported = {"DeviceGetFieldValues": field_value(action)}
        with pytest.raises(RecoveryNeededError, match=words):
            probed(monkeypatch, **reported, DeviceGetRemappedRows=(0, 8, 0, 1))


def process(pid: int, used: int | None) -> Any:
    return SimpleNamespace(pid=pid, usedGpuMemory=used)


def test_a_process_in_several_lists_counts_once_with_the_larger_figure(monkeypatch: Patch) -> None:
    """A size that the driver does not report is 0."""
    answers(
        monkeypatch,
        DeviceGetHandleByUUID=HANDLE,
        DeviceGetMemoryInfo=SimpleNamespace(total=16, used=9),
        DeviceGetComputeRunningProcesses_v2=[process(7, 5), process(8, None)],
        DeviceGetGraphicsRunningProcesses_v2=[process(8, None)],
        DeviceGetMPSComputeRunningProcesses_v2=[process(7, 3)],
        DeviceGetProcessUtilization=failure(pynvml.NVML_ERROR_NOT_SUPPORTED),
    )
    usage = Nvml().usage("GPU-0")
    assert (usage.total_bytes, usage.used_bytes) == (16, 9)
    found = {each.pid: (each.used_bytes, each.mps) for each in usage.processes}
    assert found == {7: (5, True), 8: (0, False)}


def test_version_2_of_a_list_of_processes_is_read_where_there_are_two(monkeypatch: Patch) -> None:
    """Drivers 535.43 to 535.86 fill version 3 with another layout than the binding reads."""
    answers(
        monkeypatch,
        DeviceGetHandleByUUID=HANDLE,
        DeviceGetMemoryInfo=SimpleNamespace(total=16, used=9),
        DeviceGetProcessUtilization=[],
    )
    for kind in ("Compute", "Graphics", "MPSCompute"):
        lists = {2: [process(7, 5)], 3: [process(7, 5), process(0, 7)]}
        names = {f"DeviceGet{kind}RunningProcesses_v{v}": found for v, found in lists.items()}
        answers(monkeypatch, **names)
    assert [each.pid for each in Nvml().usage("GPU-0").processes] == [7]


@pytest.mark.parametrize("newer", [True, False])
def test_memory_in_use_is_without_that_of_the_driver_where_it_is_reported_apart(
    monkeypatch: Patch, *, newer: bool
) -> None:
    """Version 2 of the call; drivers before 510 have the first one."""

    def memory(_handle: Any, version: int | None = None) -> Any:
        if version is None:
            return SimpleNamespace(total=16, used=9)
        if newer:
            return SimpleNamespace(total=16, reserved=4, used=5)
        raise pynvml.NVMLError(pynvml.NVML_ERROR_FUNCTION_NOT_FOUND)

    answers(
        monkeypatch,
        DeviceGetHandleByUUID=HANDLE,
        DeviceGetComputeRunningProcesses_v2=[],
        DeviceGetGraphicsRunningProcesses_v2=[],
        DeviceGetMPSComputeRunningProcesses_v2=[],
        DeviceGetProcessUtilization=[],
    )
    monkeypatch.setattr(pynvml, "nvmlDeviceGetMemoryInfo", memory)
    assert Nvml().usage("GPU-0").used_bytes == (5 if newer else 9)


def test_a_driver_without_the_list_of_mps_clients_reports_none(
    monkeypatch: Patch,
) -> None:
    """It is then unknown whether a process is a client of the daemon."""
    answers(
        monkeypatch,
        DeviceGetHandleByUUID=HANDLE,
        DeviceGetMemoryInfo=SimpleNamespace(total=16, used=9),
        DeviceGetComputeRunningProcesses_v2=[process(7, 5)],
        DeviceGetGraphicsRunningProcesses_v2=failure(pynvml.NVML_ERROR_NOT_SUPPORTED),
        DeviceGetGraphicsRunningProcesses_v3=failure(pynvml.NVML_ERROR_NOT_SUPPORTED),
        DeviceGetMPSComputeRunningProcesses_v2=failure(pynvml.NVML_ERROR_FUNCTION_NOT_FOUND),
        DeviceGetMPSComputeRunningProcesses_v3=failure(pynvml.NVML_ERROR_FUNCTION_NOT_FOUND),
        DeviceGetProcessUtilization=[],
    )
    assert [each.mps for each in Nvml().usage("GPU-0").processes] == [None]


def sampled(patch: Patch, value: Any) -> Nvml:
    """A GPU without processes, of whose utilization the driver answers this."""
    answers(
        patch,
        DeviceGetHandleByUUID=HANDLE,
        DeviceGetMemoryInfo=SimpleNamespace(total=16, used=9),
        DeviceGetComputeRunningProcesses_v2=[],
        DeviceGetGraphicsRunningProcesses_v2=[],
        DeviceGetMPSComputeRunningProcesses_v2=[],
        DeviceGetProcessUtilization=value,
    )
    return Nvml()


def sample(pid: int, stamp: int = 1, **percents: int) -> Any:
    """Of one process; an engine that is not named is idle."""
    engines = dict.fromkeys(("smUtil", "memUtil", "encUtil", "decUtil"), 0)
    return SimpleNamespace(pid=pid, timeStamp=stamp, **(engines | percents))


def test_utilization_is_read_from_the_last_sample_on(monkeypatch: Patch) -> None:
    """By GPU; a round without samples does not turn the time back."""
    since: list[int] = []
    rounds = iter([[sample(7, 30, smUtil=5), sample(8, 20, smUtil=9)], [], [sample(7, 40)]])

    def answer(_handle: Any, last_seen: int) -> Any:
        since.append(last_seen)
        return next(rounds)

    nvml = sampled(monkeypatch, answer)
    found = [nvml.usage("GPU-0").sm_percents for _ in range(3)]
    assert (since, found) == ([0, 30, 30], [{7: 5, 8: 9}, {}, {}])


def test_any_engine_counts_as_work_and_no_utilization_exceeds_all(monkeypatch: Patch) -> None:
    """A decoder of videos works; NVML returns figures above 100 for processes that ended."""
    samples = [sample(7, decUtil=3), sample(8, smUtil=4294), sample(9)]
    assert sampled(monkeypatch, samples).usage("GPU-0").sm_percents == {7: 0, 8: 100}


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (pynvml.NVML_ERROR_NOT_FOUND, {}),
        (pynvml.NVML_SUCCESS, {}),
        (pynvml.NVML_ERROR_NOT_SUPPORTED, None),
        (pynvml.NVML_ERROR_FUNCTION_NOT_FOUND, None),
        (pynvml.NVML_ERROR_INSUFFICIENT_SIZE, None),
        (pynvml.NVML_ERROR_NO_PERMISSION, None),
        (pynvml.NVML_ERROR_UNKNOWN, None),
        (pynvml.NVML_ERROR_GPU_IS_LOST, None),
    ],
)
def test_no_samples_are_no_work_and_any_failure_leaves_only_the_work_unknown(
    monkeypatch: Patch, code: int, expected: Any
) -> None:
    """The binding raises even for a success without samples; memory in use is known all the same.

    Among the failures is a list that grows between its two calls.
    """
    usage = sampled(monkeypatch, failure(code)).usage("GPU-0")
    assert (usage.sm_percents, usage.used_bytes) == (expected, 9)


def one_gpu(patch: Patch, **more: Any) -> Any:
    """A machine of one GPU, of which the driver reports what is needed and ``more``."""
    silent = NO_RECOVERY | dict.fromkeys(
        (
            "DeviceGetMigMode",
            "DeviceGetName",
            "DeviceGetMinorNumber",
            "DeviceGetMemoryAffinity",
            "DeviceGetCudaComputeCapability",
            "DeviceGetNvLinkState",
            "DeviceGetPciInfo",
            "SystemGetDriverVersion",
        ),
        MISSING,
    )
    known = {
        "DeviceGetCount": 1,
        "DeviceGetHandleByIndex": HANDLE,
        "DeviceGetUUID": "GPU-0",
        "DeviceGetMemoryInfo": SimpleNamespace(total=16 * MIB, reserved=0),
    }
    answers(patch, **(silent | known | more))
    return hardware_of(Nvml())


def test_what_a_driver_does_not_tell_is_unknown(monkeypatch: Patch) -> None:
    """An old driver is no reason to offer nothing."""
    (gpu,) = one_gpu(monkeypatch).gpus
    assert (gpu.model, gpu.minor, gpu.numa, gpu.capability) == ("", -1, -1, (0, 0))
    assert (gpu.mig, gpu.slots, gpu.instances) == (False, 0, ())


@pytest.mark.parametrize("question", ["DeviceGetName", "DeviceGetMigMode", "DeviceGetUUID"])
def test_a_gpu_that_is_lost_in_the_middle_of_its_questions_is_silent(
    monkeypatch: Patch, question: str
) -> None:
    """And is not listed with half of its figures."""
    lost = failure(pynvml.NVML_ERROR_GPU_IS_LOST)
    machine = one_gpu(monkeypatch, **{question: lost})
    assert (machine.gpus, list(machine.silent)) == ((), [0])


@pytest.mark.parametrize(
    "code",
    [
        pynvml.NVML_ERROR_UNKNOWN,
        pynvml.NVML_ERROR_OPERATING_SYSTEM,
        pynvml.NVML_ERROR_NO_PERMISSION,
    ],
)
def test_a_gpu_whose_memory_limits_cannot_be_read_is_offered_without_them(
    monkeypatch: Patch, code: int
) -> None:
    """No share needs them where another isolation mode, or none, is in use."""
    one_gpu(monkeypatch, DeviceGetMemoryLimits_v1=failure(code))
    (gpu,) = hardware_of(Nvml(lambda: "/sys/fs/cgroup/kubepods")).gpus
    assert not gpu.memory_limits


def test_a_model_that_is_no_text_is_unknown(monkeypatch: Patch) -> None:
    """The binding raises an error of its own where the driver's bytes are no UTF-8."""
    wrong = UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte")
    (gpu,) = one_gpu(monkeypatch, DeviceGetName=wrong).gpus
    assert gpu.model == ""


def two_gpus(patch: Patch, **more: Any) -> Any:
    """A machine of two GPUs, whose handles are their indexes."""
    both = {
        "DeviceGetCount": 2,
        "DeviceGetHandleByIndex": lambda index: index,
        "DeviceGetUUID": lambda handle: f"GPU-{handle}",
    }
    return one_gpu(patch, **(both | more))


def of_the_second(code: int, answer: Any = None) -> Any:
    """A function that fails for the second GPU alone."""
    return lambda handle, *_: failure(code) if handle == 1 else answer


@pytest.mark.parametrize(
    "code",
    [
        pynvml.NVML_ERROR_NO_PERMISSION,
        pynvml.NVML_ERROR_NOT_SUPPORTED,
        pynvml.NVML_ERROR_INVALID_ARGUMENT,
        pynvml.NVML_ERROR_UNKNOWN,
    ],
)
@pytest.mark.parametrize("function", ["DeviceGetHandleByIndex", "DeviceGetMemoryInfo"])
def test_an_error_about_one_gpu_makes_that_gpu_silent_alone(
    monkeypatch: Patch, function: str, code: int
) -> None:
    """Whatever the error is: no right to use it, or no memory of its own; it is reported."""
    memory = SimpleNamespace(total=16 * MIB, reserved=0)
    answer = 0 if function == "DeviceGetHandleByIndex" else memory
    machine = two_gpus(monkeypatch, **{function: of_the_second(code, answer)})
    assert ([gpu.index for gpu in machine.gpus], machine.silent) == (
        [0],
        {1: f"nvml{function}: {failure(code)}"},
    )


@pytest.mark.parametrize("code", [pynvml.NVML_ERROR_NO_PERMISSION, pynvml.NVML_ERROR_UNKNOWN])
@pytest.mark.parametrize("function", ["Init", "DeviceGetCount"])
def test_a_call_about_no_gpu_that_fails_means_that_the_driver_is_unavailable(
    monkeypatch: Patch, function: str, code: int
) -> None:
    """Without a right to use the driver, or with an error of it, no GPU can be queried."""
    answers(monkeypatch, **{function: failure(code)})
    nvml = Nvml()
    query = nvml.open if function == "Init" else nvml.gpu_count
    with pytest.raises(DriverUnavailableError, match=f"nvml{function}"):
        query()


def test_a_driver_that_goes_away_within_an_enumeration_is_unavailable(monkeypatch: Patch) -> None:
    """It is no error of one GPU, and not even a link is unknown then."""
    gone = failure(pynvml.NVML_ERROR_UNINITIALIZED)
    for function in ("DeviceGetMemoryInfo", "DeviceGetMemoryAffinity", "DeviceGetNvLinkState"):
        with pytest.raises(DriverUnavailableError):
            two_gpus(monkeypatch, **{function: gone})


@pytest.mark.parametrize("code", [pynvml.NVML_ERROR_UNKNOWN, pynvml.NVML_ERROR_GPU_IS_LOST])
@pytest.mark.parametrize(
    "function",
    [
        "DeviceGetTopologyCommonAncestor",
        "DeviceGetNvLinkState",
        "DeviceGetNvLinkRemoteDeviceType",
        "DeviceGetNvLinkRemotePciInfo",
        "DeviceGetPciInfo",
        "DeviceGetMemoryAffinity",
    ],
)
def test_a_query_of_links_or_numa_nodes_that_fails_hides_no_gpu(
    monkeypatch: Patch, function: str, code: int
) -> None:
    """There is no such link then, or no known node; the probes find out whether a GPU is lost."""
    known = {
        "DeviceGetTopologyCommonAncestor": pynvml.NVML_TOPOLOGY_NODE,
        "DeviceGetNvLinkState": 1,
        "DeviceGetNvLinkRemoteDeviceType": 0,
        "DeviceGetNvLinkRemotePciInfo": None,
    }
    machine = two_gpus(monkeypatch, **(known | {function: failure(code)}))
    assert ([gpu.index for gpu in machine.gpus], machine.silent) == ([0, 1], {})
    assert machine.links == (
        {} if function == "DeviceGetTopologyCommonAncestor" else {"0-1": ("NODE",)}
    )


def test_a_gpu_that_is_lost_after_its_enumeration_has_no_links(monkeypatch: Patch) -> None:
    """Nor does it hide those of the others."""
    two_gpus(monkeypatch, DeviceGetTopologyCommonAncestor=pynvml.NVML_TOPOLOGY_NODE)
    lost = failure(pynvml.NVML_ERROR_GPU_IS_LOST)
    answers(monkeypatch, DeviceGetHandleByIndex=lambda index: lost if index == 2 else index)
    assert Nvml().links(1, [0, 2]).paths == {0: "NODE", 2: ""}
    with pytest.raises(GpuLostError):
        Nvml().links(2, [0, 1])


@pytest.mark.parametrize(("reserved", "expected"), [(0, 0), (1, 1), (MIB, 1), (MIB + 1, 2)])
def test_reserved_memory_is_rounded_up(monkeypatch: Patch, reserved: int, expected: int) -> None:
    """A unit that is counted from it must exist to the last byte."""
    memory = SimpleNamespace(total=16 * MIB + 5, reserved=reserved)
    (gpu,) = one_gpu(monkeypatch, DeviceGetMemoryInfo=memory).gpus
    assert (gpu.memory_mib, gpu.reserved_mib) == (16, expected)


@pytest.mark.parametrize(
    ("words", "numa"),
    [((), -1), ((0, 0), -1), ((1, 0), 0), ((0b110, 0), 1), ((0, 0b100), NUMA_BITS + 2)],
)
def test_the_numa_node_is_the_lowest_that_is_near(
    monkeypatch: Patch, words: tuple[int, ...], numa: int
) -> None:
    """Of a mask of several words."""
    (gpu,) = one_gpu(monkeypatch, DeviceGetMemoryAffinity=words).gpus
    assert gpu.numa == numa


class EventSets:
    """Event sets of the library: those that are open, and the events in each.

    Attributes:
        refuses: no set can be made.
        spoilt: no set can be waited for.
        registers: GPUs can register for events.
    """

    def __init__(self, patch: Patch) -> None:
        self.open: dict[int, list[tuple[Any, int]]] = {}
        self.made = 0
        self.refuses = False
        self.spoilt = False
        self.registers = True
        answers(
            patch,
            EventSetCreate=self._create,
            EventSetFree=lambda events: self.open.pop(events) and None,
            EventSetWait_v2=self._wait,
            DeviceGetCount=1,
            DeviceGetHandleByIndex=HANDLE,
            DeviceRegisterEvents=lambda *_: None if self.registers else MISSING,
            DeviceGetUUID="GPU-0",
            Shutdown=None,
        )
        patch.setattr("gpudeviceplugin.gpus.nvml._address", id)

    def _create(self) -> Any:
        if self.refuses:
            return failure(pynvml.NVML_ERROR_UNKNOWN)
        self.made += 1
        self.open[self.made] = []
        return self.made

    def _wait(self, events: int, _: int) -> Any:
        if self.spoilt:
            return failure(pynvml.NVML_ERROR_GPU_IS_LOST)
        if not self.open[events]:
            return failure(pynvml.NVML_ERROR_TIMEOUT)
        handle, code = self.open[events].pop(0)
        return SimpleNamespace(device=handle, eventData=code, gpuInstanceId=0xFFFFFFFF)


def test_the_set_of_events_is_made_once_and_freed_with_the_connection(
    monkeypatch: Patch,
) -> None:
    """A new subscription frees the old set, whose events are still returned, and makes another."""
    sets, nvml = EventSets(monkeypatch), Nvml()
    assert nvml.next_xid(1) is None
    assert nvml.next_xid(1) is None
    assert list(sets.open) == [1]
    sets.open[1] += [(HANDLE, 79), (HANDLE, 48)]
    nvml.resubscribe()
    assert nvml.next_xid(1) == Xid(79, "GPU-0")
    assert nvml.next_xid(1) == Xid(48, "GPU-0")
    assert nvml.next_xid(1) is None
    assert list(sets.open) == [2]
    nvml.close()
    assert list(sets.open) == []


def test_a_set_of_events_that_cannot_be_made_anew_is_tried_again(monkeypatch: Patch) -> None:
    """The old one is kept until then, and so are its events."""
    sets, nvml = EventSets(monkeypatch), Nvml()
    nvml.next_xid(1)
    sets.open[1].append((HANDLE, 79))
    nvml.resubscribe()
    sets.refuses = True
    for _ in range(2):
        with pytest.raises(DriverError):
            nvml.next_xid(1)
    sets.refuses = False
    assert nvml.next_xid(1) == Xid(79, "GPU-0")
    assert list(sets.open) == [2]


def test_a_set_of_events_that_no_gpu_registers_for_is_freed(monkeypatch: Patch) -> None:
    """It is made again and again where no GPU reports errors; so it is where the driver goes."""
    sets, nvml = EventSets(monkeypatch), Nvml()
    sets.registers = False
    for count in (1, failure(pynvml.NVML_ERROR_UNINITIALIZED)):
        answers(monkeypatch, DeviceGetCount=count)
        with pytest.raises(DriverError):
            nvml.next_xid(1)
    assert (sets.made, list(sets.open)) == (2, [])


def test_an_error_of_a_gpu_without_a_readable_uuid_is_not_one_of_all_gpus(
    monkeypatch: Patch,
) -> None:
    """A GPU that falls off its bus: an event without a UUID would withdraw the healthy ones too."""
    sets, nvml = EventSets(monkeypatch), Nvml()
    lost = failure(pynvml.NVML_ERROR_GPU_IS_LOST)

    def register(handle: Any, _wanted: int, events: int) -> None:
        sets.open[events].append((handle, 79 if handle == "falling" else 48))

    answers(
        monkeypatch,
        DeviceGetCount=2,
        DeviceGetHandleByIndex=lambda index: ("falling", "sound")[index],
        DeviceGetUUID=lambda handle: lost if handle == "falling" else "GPU-1",
        DeviceRegisterEvents=register,
    )
    assert nvml.next_xid(1) == Xid(48, "GPU-1")
    assert nvml.next_xid(1) is None


def test_a_set_of_events_that_is_abandoned_is_never_freed(monkeypatch: Patch) -> None:
    """A wait that hangs uses it; after a new connection there is a new one."""
    sets, nvml = EventSets(monkeypatch), Nvml()
    nvml.next_xid(1)
    nvml.abandon_events()
    nvml.close()
    assert list(sets.open) == [1]
    nvml.next_xid(1)
    assert list(sets.open) == [1, 2]


def test_a_wait_that_fails_is_followed_by_a_new_set_of_events(monkeypatch: Patch) -> None:
    """A lost GPU spoils the set; a time-out does not."""
    sets, nvml = EventSets(monkeypatch), Nvml()
    nvml.next_xid(1)
    sets.spoilt = True
    with pytest.raises(DriverError, match="nvmlEventSetWait_v2: "):
        nvml.next_xid(1)
    sets.spoilt = False
    assert nvml.next_xid(1) is None
    assert list(sets.open) == [2]


@pytest.mark.parametrize(
    ("first", "second", "links"),
    [
        ((18, 0), (12, 0), ("NODE", "NV12")),
        ((0, 2), (0, 2), ("NODE", "NV2")),
        ((0, 4), (0, 1), ("NODE", "NV1")),
        ((0, 1), (0, 4), ("NODE", "NV1")),
        ((0, 4), (0, 0), ("NODE",)),
        ((0, 0), (18, 0), ("NODE",)),
    ],
)
def test_links_of_two_gpus_are_those_that_both_have(
    monkeypatch: Patch, first: tuple[int, int], second: tuple[int, int], links: tuple[str, ...]
) -> None:
    """As many as the GPU with fewer of them reports, through a switch or to each other."""
    ends = {0: first, 1: second}
    switch = pynvml.NVML_NVLINK_DEVICE_TYPE_SWITCH
    machine = one_gpu(
        monkeypatch,
        DeviceGetCount=2,
        DeviceGetHandleByIndex=lambda index: index,
        DeviceGetUUID=lambda handle: f"GPU-{handle}",
        DeviceGetTopologyCommonAncestor=pynvml.NVML_TOPOLOGY_NODE,
        DeviceGetPciInfo=lambda handle: SimpleNamespace(busId=f"bus-{handle}".encode()),
        DeviceGetNvLinkState=lambda handle, link: int(link < sum(ends[handle])),
        DeviceGetNvLinkRemoteDeviceType=lambda handle, link: (
            switch if link < ends[handle][0] else 0
        ),
        DeviceGetNvLinkRemotePciInfo=lambda handle, _: SimpleNamespace(busId=f"BUS-{1 - handle}"),
    )
    assert machine.links == {"0-1": links}


GPU_A100, SWITCH_A100, CPU_POWER9 = 0x20B010DE, 0x1AF110DE, 0x04EA1014


@pytest.mark.parametrize(
    ("far", "links"),
    [
        ([SWITCH_A100] * 12, ("NODE", "NV12")),
        ([SWITCH_A100] * 6 + [GPU_A100] * 2, ("NODE", "NV6")),
        ([GPU_A100] * 12, ("NODE",)),
        ([CPU_POWER9] * 3, ("NODE",)),
        ([0] * 3, ("NODE",)),
    ],
)
@pytest.mark.parametrize(
    "code", [pynvml.NVML_ERROR_FUNCTION_NOT_FOUND, pynvml.NVML_ERROR_NOT_SUPPORTED]
)
def test_a_driver_without_the_type_of_the_far_end_has_links_through_switches(
    monkeypatch: Patch, far: list[int], links: tuple[str, ...], code: int
) -> None:
    """Drivers of CUDA 11.0 to 11.3: the PCI device shows a switch.

    A GPU of the same model that is not listed, such as a lost one, and a CPU are no switches.
    """
    machine = two_gpus(
        monkeypatch,
        DeviceGetTopologyCommonAncestor=pynvml.NVML_TOPOLOGY_NODE,
        DeviceGetPciInfo=lambda handle: SimpleNamespace(
            busId=f"bus-{handle}".encode(), pciDeviceId=GPU_A100
        ),
        DeviceGetNvLinkState=lambda _, link: int(link < len(far)),
        DeviceGetNvLinkRemoteDeviceType=failure(code),
        DeviceGetNvLinkRemotePciInfo=lambda _, link: SimpleNamespace(
            busId=f"far-{link}".encode(), pciDeviceId=far[link]
        ),
    )
    assert machine.links == {"0-1": links}


def test_direct_links_need_no_type_of_the_far_end(monkeypatch: Patch) -> None:
    """The bus id is that of the other GPU; 36 links are counted."""
    machine = two_gpus(
        monkeypatch,
        DeviceGetTopologyCommonAncestor=pynvml.NVML_TOPOLOGY_SYSTEM,
        DeviceGetPciInfo=lambda handle: SimpleNamespace(
            busId=f"bus-{handle}".encode(), pciDeviceId=GPU_A100
        ),
        DeviceGetNvLinkState=1,
        DeviceGetNvLinkRemoteDeviceType=failure(pynvml.NVML_ERROR_FUNCTION_NOT_FOUND),
        DeviceGetNvLinkRemotePciInfo=lambda handle, _: SimpleNamespace(
            busId=f"bus-{1 - handle}".encode(), pciDeviceId=GPU_A100
        ),
    )
    assert machine.links == {"0-1": ("SYS", "NV36")}
