"""Questions to the driver: one at a time for each GPU, each with a deadline."""

import asyncio
import threading
from collections.abc import AsyncIterator, Collection
from itertools import combinations
from unittest.mock import Mock

import msgspec
import pytest
from fakedriver import FakeDriver, t4

from gpudeviceplugin.gpus.devices import (
    DriverError,
    DriverGpu,
    DriverUnavailableError,
    GpuLostError,
    MigInstance,
    Usage,
    Xid,
)
from gpudeviceplugin.gpus.driver import (
    EVENT_WAIT_MS,
    DriverTimeoutError,
    PatientDriver,
    _Series,
)
from gpudeviceplugin.gpus.links import GpuLinks
from gpukube.testing.waiting import until

FIRST, SECOND = t4(0).uuid, t4(1).uuid
SECONDS = 60.0


class Driver(FakeDriver):
    """Records calls in order; a call about GPU 0 may hang until it is released."""

    def __init__(self) -> None:
        super().__init__(t4(0), t4(1))
        self.calls: list[str] = []
        self.let_go = threading.Event()
        self.let_go.set()
        self.waiting = threading.Event()
        self.event = threading.Event()
        self.event.set()
        self.at_once = 0
        self.most_at_once = 0

    def open(self) -> None:
        self.calls.append("open")
        super().open()

    def close(self) -> None:
        self.calls.append("close")

    def abandon_events(self) -> None:
        self.calls.append("abandon")

    def probe(self, uuid: str) -> bool:
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        if uuid == FIRST:
            self.let_go.wait(SECONDS)
        threading.Event().wait(0.002)  # long enough for another question to come in between
        self.at_once -= 1
        if uuid in self.lost:
            raise GpuLostError(f"{uuid} is lost")
        return True

    def next_xid(self, timeout_ms: int) -> Xid | None:
        self.calls.append(f"wait {timeout_ms}")
        self.waiting.set()
        self.event.wait(SECONDS)
        self.calls.append("waited")
        return Xid(79, FIRST)


async def probe(patient: PatientDriver, uuid: str) -> bool:
    """The answer of one GPU. Raises DriverError."""
    answer = (await patient.probes([uuid]))[uuid]
    if isinstance(answer, DriverError):
        raise answer
    return answer


async def answers(patient: PatientDriver) -> bool:
    """Wait until questions about GPU 0 are put again."""
    async with asyncio.timeout(SECONDS):
        while True:
            try:
                return await probe(patient, FIRST)
            except DriverTimeoutError:
                await asyncio.sleep(0.005)


@pytest.fixture
def driver() -> Driver:
    """Two GPUs."""
    return Driver()


@pytest.fixture
async def patient(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[PatientDriver]:
    """With short deadlines."""
    monkeypatch.setattr("gpudeviceplugin.gpus.driver.PROBE_SECONDS", 0.5)
    made = PatientDriver(driver)
    yield made
    driver.let_go.set()
    made.close()


async def test_a_connection_is_begun_after_the_one_before_was_ended(
    driver: Driver, patient: PatientDriver
) -> None:
    """What is left of a connection with a driver that went would spoil the new one."""
    await patient.open()
    assert driver.calls == ["close", "open"]


async def test_answers_and_errors_are_the_drivers(driver: Driver, patient: PatientDriver) -> None:
    """Each question reaches its method with its GPU."""
    await patient.open()
    assert [gpu.uuid for gpu in (await patient.machine()).gpus] == [FIRST, SECOND]
    driver.usages[SECOND] = usage = Usage(16, 7, ())
    assert await patient.usages([SECOND]) == {SECOND: usage}
    driver.lost.add(SECOND)
    with pytest.raises(GpuLostError, match="is lost"):
        await probe(patient, SECOND)
    assert await patient.next_xid() == Xid(79, FIRST)
    assert driver.calls[-2:] == [f"wait {EVENT_WAIT_MS}", "waited"]


async def test_events_are_waited_for_once_there_is_a_connection(
    driver: Driver, patient: PatientDriver
) -> None:
    """NVML refuses calls before its initialization, which would be logged at every start."""
    waiting = asyncio.create_task(patient.next_xid())
    await patient.machine()  # a call to the driver and back
    assert f"wait {EVENT_WAIT_MS}" not in driver.calls
    await patient.open()
    assert await waiting == Xid(79, FIRST)
    assert driver.calls[-2:] == [f"wait {EVENT_WAIT_MS}", "waited"]


async def test_a_connection_is_not_begun_anew_under_a_wait_for_an_event(
    driver: Driver, patient: PatientDriver
) -> None:
    """The wait uses the event set that the end of the old connection frees."""
    await patient.open()
    driver.event.clear()
    waiting = asyncio.create_task(patient.next_xid())
    await asyncio.to_thread(driver.waiting.wait, SECONDS)
    opening = asyncio.create_task(patient.open())
    await probe(patient, SECOND)  # a call to the driver and back
    driver.event.set()
    await asyncio.gather(waiting, opening)
    assert driver.calls[2:] == [f"wait {EVENT_WAIT_MS}", "waited", "close", "open"]


async def test_no_gpu_is_probed_while_the_connection_is_begun_anew(
    driver: Driver, patient: PatientDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """NVML refuses calls between the two, and all GPUs would count as unhealthy."""
    await patient.open()
    await patient.probes([FIRST, SECOND])
    closed, proceed = threading.Event(), threading.Event()

    def begin() -> None:
        closed.set()
        proceed.wait(SECONDS)
        closed.clear()

    def refused(_: str) -> bool:
        if closed.is_set():
            raise DriverUnavailableError("nvmlDeviceGetHandleByUUID: Uninitialized")
        return True

    monkeypatch.setattr(driver, "open", begin)
    monkeypatch.setattr(driver, "probe", refused)
    opening = asyncio.create_task(patient.open())
    await asyncio.to_thread(closed.wait, SECONDS)
    probing = asyncio.create_task(patient.probes([FIRST, SECOND]))
    await asyncio.wait({probing}, timeout=0.1)
    proceed.set()
    await opening
    assert await probing == {FIRST: True, SECOND: True}


async def test_a_wait_for_an_event_that_hangs_keeps_its_event_set(
    driver: Driver, patient: PatientDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The connection is begun anew, but the set is not freed under the wait."""
    monkeypatch.setattr("gpudeviceplugin.gpus.driver.PROBE_SECONDS", 0.01)
    monkeypatch.setattr("gpudeviceplugin.gpus.driver.EVENT_WAIT_MS", 10)
    await patient.open()
    driver.event.clear()
    with pytest.raises(DriverTimeoutError):
        await patient.next_xid()
    await patient.open()
    others = [call for call in driver.calls[2:] if call != "wait 10"]  # its thread may begin late
    assert others == ["abandon", "close", "open"]
    driver.event.set()


async def test_a_wait_for_events_may_take_longer_than_the_driver_is_instructed_to_wait(
    patient: PatientDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A quiet machine must not be taken for one that hangs; questions have names of their own."""
    seen: list[tuple[str, float]] = []
    await patient.open()

    async def ask(about: str, seconds: float, *_: object) -> None:
        seen.append((about, seconds))

    monkeypatch.setattr(patient, "_ask", ask)
    await patient.next_xid()
    await patient.memory_used(FIRST, "pod")
    assert seen == [("events", EVENT_WAIT_MS / 1000 + 0.5), (FIRST, 0.5)]


@pytest.mark.slow
async def test_a_gpu_that_hangs_in_its_enumeration_is_silent_and_the_others_are_listed(
    driver: Driver, patient: PatientDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may hang since before the plugin started; it is silent until it returns."""
    monkeypatch.setattr("gpudeviceplugin.gpus.driver.ENUMERATE_SECONDS", 1.0)
    gpu, asked = driver.gpu, list[int]()

    def hanging(index: int) -> DriverGpu:
        asked.append(index)
        if index == 0:
            driver.let_go.wait(SECONDS)
        return gpu(index)

    driver.gpu = hanging  # type: ignore[method-assign]
    driver.let_go.clear()
    for why in ("GPU 0 did not return within 1.0 s", "GPU 0 has not returned yet"):
        found = await patient.machine()
        assert ([each.uuid for each in found.gpus], found.silent) == ([SECOND], {0: why})
    assert asked == [0, 1, 1]
    driver.let_go.set()
    async with asyncio.timeout(SECONDS):
        while patient._hanging:  # noqa: ASYNC110 - a thread ends it
            await asyncio.sleep(0.005)
    assert [each.uuid for each in (await patient.machine()).gpus] == [FIRST, SECOND]


@pytest.mark.slow
@pytest.mark.parametrize("hanging", [0, 1, 3])
async def test_the_links_of_a_gpu_that_hangs_are_unknown_and_those_of_the_others_are_read(
    driver: Driver, patient: PatientDriver, monkeypatch: pytest.MonkeyPatch, hanging: int
) -> None:
    """It may answer all other queries; its links are read when it has returned."""
    monkeypatch.setattr("gpudeviceplugin.gpus.driver.ENUMERATE_SECONDS", 1.0)
    driver.gpus = tuple(t4(index) for index in range(4))
    links = driver.links

    def slow(index: int, others: Collection[int]) -> GpuLinks:
        if hanging in {index, *others}:
            driver.let_go.wait(SECONDS)
        return links(index, others)

    driver.links = slow  # type: ignore[method-assign]
    driver.let_go.clear()
    pairs = {f"{a}-{b}" for a, b in combinations(range(4), 2)}
    for why in ("did not return within 1.0 s", "has not returned yet"):
        found = await patient.machine()
        assert (len(found.gpus), found.silent) == (4, {})
        assert found.unlinked == {hanging: f"links of GPU {hanging} {why}"}
        assert found.links.keys() == {pair for pair in pairs if str(hanging) not in pair}
    driver.let_go.set()
    async with asyncio.timeout(SECONDS):
        while patient._hanging:  # noqa: ASYNC110 - a thread ends it
            await asyncio.sleep(0.005)
    found = await patient.machine()
    assert (found.links.keys(), found.unlinked) == (pairs, {})


async def test_the_links_of_a_gpu_that_fail_are_unknown_and_its_error_is_the_reason(
    driver: Driver, patient: PatientDriver
) -> None:
    """The GPU is listed: no allocation needs its links."""
    driver.links = Mock(side_effect=[GpuLinks(), GpuLostError("lost")])  # type: ignore[method-assign]
    found = await patient.machine()
    assert (len(found.gpus), found.links, found.unlinked) == (2, {}, {1: "lost"})


async def test_a_driver_that_goes_while_links_are_read_is_unavailable(
    driver: Driver, patient: PatientDriver
) -> None:
    """As during the rest of an enumeration."""
    driver.links = Mock(side_effect=DriverUnavailableError("gone"))  # type: ignore[method-assign]
    with pytest.raises(DriverUnavailableError, match="gone"):
        await patient.machine()


async def test_a_driver_that_goes_during_an_enumeration_is_unavailable(
    driver: Driver, patient: PatientDriver
) -> None:
    """Its GPUs are not silent one by one: the connection is to be begun anew."""
    driver.gpu = Mock(side_effect=DriverUnavailableError("gone"))  # type: ignore[method-assign]
    with pytest.raises(DriverUnavailableError, match="gone"):
        await patient.machine()


@pytest.mark.slow
async def test_a_gpu_that_hangs_is_not_queried_until_it_answered(
    driver: Driver, patient: PatientDriver
) -> None:
    """The others answer meanwhile, and afterwards it is queried as before."""
    driver.let_go.clear()
    with pytest.raises(DriverTimeoutError, match=rf"{FIRST} did not return within 0\.5 s"):
        await probe(patient, FIRST)
    for _ in range(3):
        await asyncio.sleep(0.002)
        with pytest.raises(DriverTimeoutError, match="has not returned yet"):
            await patient.memory_limit(FIRST, "pod")
    await probe(patient, SECOND)
    assert len(await asyncio.gather(*(probe(patient, SECOND) for _ in range(3)))) == 3
    driver.let_go.set()
    await answers(patient)


@pytest.mark.slow
async def test_a_driver_that_does_not_close_its_connection_holds_nothing_up(
    driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The plugin ends within its grace time; the connection ends with the process."""
    monkeypatch.setattr("gpudeviceplugin.gpus.driver.CLOSE_SECONDS", 0.05)
    closed = Mock(side_effect=lambda: driver.let_go.wait(SECONDS))
    driver.close = closed  # type: ignore[method-assign]
    driver.let_go.clear()
    await asyncio.wait_for(asyncio.to_thread(PatientDriver(driver).close), SECONDS / 4)
    await until("its thread has begun", lambda: closed.called)
    closed.assert_called_once_with()
    driver.let_go.set()


async def test_a_node_without_a_free_process_id_ends_no_question(
    driver: Driver, patient: PatientDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The plugin would end with an error that is none of the driver's, and its MPS daemons too."""
    driver.let_go.clear()
    first = asyncio.create_task(probe(patient, FIRST))
    await until("GPU 0 is asked", lambda: driver.at_once)
    monkeypatch.setattr(threading.Thread, "start", Mock(side_effect=RuntimeError("no thread")))
    second = asyncio.create_task(patient.probes([SECOND]))
    await asyncio.sleep(0)
    driver.let_go.set()
    await asyncio.wait({first, second})
    assert list(second.result()) == [SECOND]


async def test_questions_about_one_gpu_are_put_one_after_the_other(
    driver: Driver, patient: PatientDriver
) -> None:
    """NVML need not take two at a time."""
    await asyncio.gather(*(probe(patient, SECOND) for _ in range(8)))
    assert driver.most_at_once == 1


@pytest.mark.slow
async def test_a_late_failure_is_read_by_nobody_and_reported_by_nobody(
    driver: Driver, patient: PatientDriver
) -> None:
    """Its question was answered with a time-out before."""
    faults: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, fault: faults.append(fault))
    driver.let_go.clear()
    driver.lost.add(FIRST)
    with pytest.raises(DriverTimeoutError):
        await probe(patient, FIRST)
    driver.let_go.set()
    async with asyncio.timeout(SECONDS):
        while patient._hanging:  # noqa: ASYNC110 - a thread ends it
            await asyncio.sleep(0.005)
    assert faults == []


async def test_a_connection_with_a_question_that_hangs_is_left_as_it_is(driver: Driver) -> None:
    """To end it under a call would crash the process; without one it is ended."""
    calm = PatientDriver(driver)
    calm.close()
    assert driver.calls == ["close"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("gpudeviceplugin.gpus.driver.PROBE_SECONDS", 0.05)
        hanging = PatientDriver(driver)
        driver.let_go.clear()
        with pytest.raises(DriverTimeoutError):
            await probe(hanging, FIRST)
        hanging.close()
        assert driver.calls == ["close"]
        driver.let_go.set()


@pytest.mark.slow
async def test_a_process_that_stood_still_needs_more_time(
    driver: Driver, patient: PatientDriver
) -> None:
    """A machine that stops the whole plugin longer than the deadline reports nothing of the GPU."""
    driver.let_go.clear()
    question = asyncio.create_task(probe(patient, FIRST))
    await asyncio.sleep(0)
    threading.Event().wait(1.2)  # the event loop does not run
    for _ in range(5):
        await asyncio.sleep(0)
    assert not question.done()
    driver.let_go.set()
    await question


async def test_a_cancelled_question_keeps_its_gpu_until_it_returns(
    driver: Driver, patient: PatientDriver
) -> None:
    """The thread of a cancelled question still runs: no second one joins it."""
    driver.let_go.clear()
    question = asyncio.create_task(probe(patient, FIRST))
    await asyncio.sleep(0.01)
    question.cancel()
    await asyncio.wait({question})
    with pytest.raises(DriverTimeoutError, match="has not returned yet"):
        await probe(patient, FIRST)
    driver.let_go.set()
    await answers(patient)


async def test_all_gpus_are_probed_in_one_thread(driver: Driver, patient: PatientDriver) -> None:
    """A node where nothing happens is woken once a round and not for each GPU."""
    threads = list[int]()
    touch = driver.probe
    driver.probe = lambda uuid: (threads.append(threading.get_ident()), touch(uuid))[1]  # type: ignore[method-assign]
    driver.lost.add(SECOND)
    found = await patient.probes([FIRST, SECOND])
    assert (found[FIRST], str(found[SECOND])) == (True, f"{SECOND} is lost")
    assert (len(threads), len(set(threads))) == (2, 1)


async def test_usage_of_all_gpus_is_read_in_one_thread(
    driver: Driver, patient: PatientDriver
) -> None:
    """One after the other; a GPU that fails has its error and spoils no other answer."""
    threads = set[int]()
    read = driver.usage

    def usage(uuid: str) -> Usage:
        threads.add(threading.get_ident())
        return read(uuid)

    driver.usage = usage  # type: ignore[method-assign]
    driver.usages[SECOND] = Usage(16, 7, ())
    driver.lost.add(FIRST)
    found = await patient.usages([FIRST, SECOND])
    assert (str(found[FIRST]), found[SECOND]) == (f"{FIRST} is lost", Usage(16, 7, ()))
    assert len(threads) == 1
    assert driver.most_at_once == 1


@pytest.mark.slow
async def test_usage_behind_a_gpu_that_hangs_is_read_nevertheless(
    driver: Driver, patient: PatientDriver
) -> None:
    """The one that hangs has an error, at once the next time, and is read when it returned.

    The thread that it held then asks about no other GPU.
    """
    driver.usages |= {FIRST: Usage(16, 1, ()), SECOND: Usage(16, 7, ())}
    asked = list[str]()
    read = driver.usage
    driver.usage = lambda uuid: (asked.append(uuid), read(uuid))[1]  # type: ignore[method-assign]
    driver.let_go.clear()
    for words in (r"did not return within 0\.5 s", "has not returned yet"):
        found = await patient.usages([FIRST, SECOND])
        assert found[SECOND] == Usage(16, 7, ())
        with pytest.raises(DriverTimeoutError, match=words):
            raise_it(found[FIRST])
    driver.let_go.set()
    await answers(patient)
    assert asked.count(SECOND) == 2
    assert await patient.usages([FIRST, SECOND]) == driver.usages


@pytest.mark.slow
async def test_the_instances_of_a_gpu_that_hangs_keep_one_thread(
    driver: Driver, patient: PatientDriver
) -> None:
    """A GPU in MIG mode has up to seven, more than there are threads for all GPUs."""
    instances = [f"MIG-{number}" for number in range(7)]
    parts = tuple(MigInstance(slot, uuid, "1g", 1) for slot, uuid in enumerate(instances))
    driver.gpus = (msgspec.structs.replace(t4(0), mig=True, instances=parts), t4(1))
    await patient.machine()
    asked = list[str]()
    driver.probe = lambda uuid: (  # type: ignore[method-assign]
        asked.append(uuid),
        uuid == SECOND or driver.let_go.wait(SECONDS),
    )[1]
    driver.let_go.clear()
    driver.gpus = driver.gpus[1:]  # the GPU does not answer an enumeration either
    for _ in range(2):
        found = await patient.probes([*instances, SECOND])
        assert [uuid for uuid, answer in found.items() if answer is True] == [SECOND]
        await patient.machine()
    assert asked == [instances[0], SECOND, SECOND]
    driver.let_go.set()


@pytest.mark.slow
async def test_gpus_that_hang_leave_a_thread_for_every_other_gpu(
    driver: Driver, patient: PatientDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A switch may take all GPUs but one with it; enumerations and a wait for events hang too."""
    monkeypatch.setattr("gpudeviceplugin.gpus.driver.ENUMERATE_SECONDS", 0.1)
    uuids = [f"GPU-{number}" for number in range(64)]
    answering = uuids[-1]
    driver.probe = lambda uuid: uuid == answering or driver.let_go.wait(SECONDS)  # type: ignore[method-assign]
    driver.gpus = tuple(t4(number % 10) for number in range(64))
    driver.gpu = lambda index: driver.let_go.wait(SECONDS) and t4(index)  # type: ignore[assignment,method-assign,return-value]
    await patient.open()
    driver.let_go.clear()
    driver.event.clear()
    event = asyncio.create_task(patient.next_xid())
    assert len((await patient.machine()).silent) == 64
    for _ in range(2):
        found = await patient.probes(uuids)
        assert [uuid for uuid, answer in found.items() if answer is True] == [answering]
    driver.let_go.set()
    driver.event.set()
    await asyncio.gather(event, return_exceptions=True)


async def test_an_answer_at_the_last_moment_counts(patient: PatientDriver) -> None:
    """Its thread has not taken up the next GPU yet."""
    series = _Series(lambda _: True)
    series.current, series.answers = FIRST, {FIRST: True}
    running = asyncio.get_running_loop().create_future()
    await patient._answers(series, running, 0.01)
    assert series.answers == {FIRST: True}
    assert series.ended


def raise_it(answer: object) -> None:
    """An error that was returned."""
    assert isinstance(answer, Exception)
    raise answer
