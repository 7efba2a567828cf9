"""Lost GPUs and XID errors, made by editing the state file while the library runs."""

from typing import Any

import pytest

from mocknvml.tests.conftest import Start
from mocknvml.tests.nvml_process import Handle, NvmlProcess

pytestmark = pytest.mark.slow

XID = 8
SOON_MS = 30_000
LOST = "NVMLError_GpuIsLost"
NOT_SUPPORTED = 3
RECOVERY_ACTION, ANOTHER_FIELD = 230, 1

ON_ONE_GPU = [
    ("nvmlDeviceGetName",),
    ("nvmlDeviceGetUUID",),
    ("nvmlDeviceGetIndex",),
    ("nvmlDeviceGetMinorNumber",),
    ("nvmlDeviceGetSerial",),
    ("nvmlDeviceGetMemoryInfo",),
    ("nvmlDeviceGetPciInfo",),
    ("nvmlDeviceGetBoardId",),
    ("nvmlDeviceGetNvLinkState", 0),
    ("nvmlDeviceGetMemoryAffinity", 1, 0),
    ("nvmlDeviceGetCpuAffinity", 2),
    ("nvmlDeviceGetComputeMode",),
    ("nvmlDeviceSetComputeMode", 0),
    ("nvmlDeviceGetMigMode",),
    ("nvmlDeviceGetComputeRunningProcesses",),
    ("nvmlDeviceGetProcessUtilization", 0),
    ("nvmlDeviceGetUtilizationRates",),
    ("nvmlDeviceGetTemperature", 0),
    ("nvmlDeviceGetPowerUsage",),
    ("nvmlDeviceGetEccMode",),
    ("nvmlDeviceGetSupportedEventTypes",),
    ("nvmlDeviceGetArchitecture",),
    ("nvmlDeviceGetFieldValues", [230]),
]


def listen(worker: NvmlProcess, *gpus: Handle) -> Handle:
    """Return an event set registered for XID errors of the GPUs."""
    events: Handle = worker.call("nvmlEventSetCreate")
    for gpu in gpus:
        worker.call("nvmlDeviceRegisterEvents", gpu, XID, events)
    return events


@pytest.mark.parametrize("question", ON_ONE_GPU, ids=lambda question: str(question[0]))
def test_lost_gpu_answers_so(nvml: Start, question: tuple[Any, ...]) -> None:
    """Whatever is queried of a lost GPU, the answer is that it is lost."""
    worker = nvml("a100-pcie-4x40")
    gpu = worker.gpus()[1]
    worker.append("gpu 1 lost")
    function, *arguments = question
    assert worker.failure(function, gpu, *arguments) == LOST


def test_others_live_on_and_the_lost_comes_back(nvml: Start) -> None:
    """A lost GPU takes no other with it, still counts, and works again once recovered."""
    worker = nvml("dgx1-volta")
    gpus = worker.gpus()
    uuid = worker.call("nvmlDeviceGetUUID", gpus[1])
    worker.append("gpu 1 lost")

    assert worker.failure("nvmlDeviceGetHandleByIndex", 1) == LOST
    assert worker.failure("nvmlDeviceGetHandleByUUID", uuid) == LOST
    assert worker.failure("nvmlDeviceGetTopologyCommonAncestor", gpus[0], gpus[1]) == LOST
    assert worker.call("nvmlDeviceGetNvLinkState", gpus[0], 0) == 0
    assert worker.call("nvmlDeviceGetCount") == 8
    assert worker.call("nvmlDeviceGetName", gpus[0]).startswith("Tesla V100")

    worker.append("gpu 1 recovered")
    assert worker.call("nvmlDeviceGetUUID", gpus[1]) == uuid
    assert worker.call("nvmlDeviceGetNvLinkState", gpus[0], 0) == 1


def test_xid_is_delivered_once_to_each_set(nvml: Start) -> None:
    """Every XID line reaches every event set that listens to its GPU exactly once, in order."""
    worker = nvml("t4-2x16")
    gpus = worker.gpus()
    sets = [listen(worker, *gpus), listen(worker, *gpus)]
    worker.append("xid 31 gpu 1", "xid 79 gpu 0")
    for events in sets:
        got = [worker.call("nvmlEventSetWait", events, SOON_MS) for _ in range(2)]
        indexes = [worker.call("nvmlDeviceGetIndex", event["device"]) for event in got]
        assert [(event["eventType"], event["eventData"]) for event in got] == [(XID, 31), (XID, 79)]
        assert indexes == [1, 0]
        assert got[0]["gpuInstanceId"] == 0xFFFFFFFF
        assert worker.failure("nvmlEventSetWait", events, 0) == "NVMLError_Timeout"


def test_waiter_is_woken_by_an_edit(nvml: Start) -> None:
    """A wait that began before the error happened ends with it and not with its timeout."""
    worker = nvml("t4-2x16")
    events = listen(worker, *worker.gpus())
    worker.send("nvmlEventSetWait", events, SOON_MS)
    worker.append("xid 48 gpu 1")
    assert worker.receive()["value"]["eventData"] == 48


def test_a_wait_for_an_event_may_poll_rarely(nvml: Start) -> None:
    """The driver's library sleeps until an event comes; an event is found at the deadline then."""
    rare = nvml("t4-2x16", GPUSHARE_MOCK_NVML_EVENT_POLL_MS="60000")
    often = nvml("t4-2x16")
    waits = []
    for worker in (rare, often):
        events = listen(worker, *worker.gpus())
        before = worker.waits()
        worker.send("nvmlEventSetWait", events, 1_000)
        worker.append("xid 48 gpu 1")
        assert worker.receive()["value"]["eventData"] == 48
        assert worker.failure("nvmlEventSetWait", events, 1_000) == "NVMLError_Timeout"
        waits.append(worker.waits() - before)
    assert waits[0] < 8 < waits[1]


def test_xid_of_other_gpus_and_of_the_past_is_not_delivered(nvml: Start) -> None:
    """A set hears neither of GPUs it did not register nor of what was before it registered."""
    worker = nvml("t4-2x16", state="xid 13 gpu 0\n")
    events = listen(worker, worker.gpus()[0])
    worker.append("xid 62 gpu 1")
    assert worker.failure("nvmlEventSetWait", events, 0) == "NVMLError_Timeout"
    worker.append("xid 63 gpu 0")
    assert worker.call("nvmlEventSetWait", events, SOON_MS)["eventData"] == 63


def test_rewritten_state_file_brings_only_news(nvml: Start) -> None:
    """An editor that replaces the file does not repeat old XIDs; an emptied file starts anew."""
    worker = nvml("t4-2x16")
    events = listen(worker, *worker.gpus())
    worker.append("xid 48 gpu 0")
    assert worker.call("nvmlEventSetWait", events, SOON_MS)["eventData"] == 48

    fresh = worker.state.with_suffix(".new")
    fresh.write_text("# edited\nxid 48 gpu 0\ngpu 1 lost")
    fresh.replace(worker.state)
    assert worker.failure("nvmlDeviceGetHandleByIndex", 1) == LOST
    assert worker.failure("nvmlEventSetWait", events, 0) == LOST  # reported once: a GPU went
    assert worker.failure("nvmlEventSetWait", events, 0) == "NVMLError_Timeout"

    worker.state.write_text("")
    assert worker.call("nvmlDeviceGetHandleByIndex", 1)
    worker.append("xid 48 gpu 0")
    assert worker.call("nvmlEventSetWait", events, SOON_MS)["eventData"] == 48


@pytest.mark.parametrize(
    ("word", "number"),
    [("none", 0), ("reset", 1), ("reboot", 2), ("drain-p2p", 3), ("drain-and-reset", 4)],
)
def test_a_new_driver_reports_the_recovery_that_a_gpu_needs(
    nvml: Start, word: str, number: int
) -> None:
    """None unless the state file has one; of other GPUs and other fields nothing changes."""
    worker = nvml("h100-r615-2x80")
    first, second = worker.gpus()
    worker.append(f"gpu 1 recovery {word}")
    values = worker.call("nvmlDeviceGetFieldValues", second, [RECOVERY_ACTION, ANOTHER_FIELD])
    assert [each["nvmlReturn"] for each in values] == [0, NOT_SUPPORTED]
    assert values[0]["value"]["uiVal"] == number
    (value,) = worker.call("nvmlDeviceGetFieldValues", first, [RECOVERY_ACTION])
    assert (value["nvmlReturn"], value["value"]["uiVal"]) == (0, 0)


def test_an_old_driver_does_not_report_the_recovery_that_a_gpu_needs(nvml: Start) -> None:
    """Drivers before 565 do not know the field."""
    worker = nvml("h200-8x141", state="gpu 0 recovery reset\n")
    (value,) = worker.call("nvmlDeviceGetFieldValues", worker.gpus()[0], [RECOVERY_ACTION])
    assert value["nvmlReturn"] == NOT_SUPPORTED


def test_wrong_edit_is_reported_and_changes_nothing(nvml: Start) -> None:
    """A state line nobody understands is reported with its place; the last good state holds."""
    worker = nvml("t4-2x16")
    worker.append("gpu 1 lost")
    assert worker.failure("nvmlDeviceGetHandleByIndex", 1) == LOST
    worker.append("gpu 7 lost")
    assert worker.failure("nvmlDeviceGetHandleByIndex", 1) == LOST
    assert worker.call("nvmlDeviceGetHandleByIndex", 0)
    errors = worker.close()
    assert errors.count(f"{worker.state}:2: 'gpu 7 lost' is not one of:") == 1


def test_freed_set_is_refused(nvml: Start) -> None:
    """A freed event set is an error to every later call and not a crash."""
    worker = nvml("t4-2x16")
    events = listen(worker, *worker.gpus())
    worker.call("nvmlEventSetFree", events)
    assert worker.failure("nvmlEventSetWait", events, 0) == "NVMLError_InvalidArgument"
    assert worker.failure("nvmlEventSetFree", events) == "NVMLError_InvalidArgument"


def test_unknown_kind_of_event_is_refused(nvml: Start) -> None:
    """A GPU registers only for the kinds of events it supports, XID errors among them."""
    worker = nvml("t4-2x16")
    gpu = worker.gpus()[0]
    events = worker.call("nvmlEventSetCreate")
    supported = worker.call("nvmlDeviceGetSupportedEventTypes", gpu)
    refusal = worker.failure("nvmlDeviceRegisterEvents", gpu, 1 << 40, events)
    assert supported & XID
    assert refusal == "NVMLError_NotSupported"
