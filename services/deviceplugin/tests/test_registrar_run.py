"""The registrar over time: when it looks, what wakes it, and what its end leaves behind."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from gpucore.node.allocation.device_ids import Resource
from gpudeviceplugin.kubelet.endpoint import KUBELET_SOCKET, RegistrationError
from gpudeviceplugin.kubelet.registration import LOOK_SECONDS, RETRY_SECONDS, Registrar
from gpukube.testing.clock import FakeClock

Effect = tuple[float, str]


class Directory:
    """Kubelet's directory, and the notices of changes in it.

    Attributes:
        watched: the directory of every watch.
        faults: errors of the next watches.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.watched: list[Path] = []
        self.faults: list[Exception] = []
        self.ended = 0
        self._notices: asyncio.Queue[str] = asyncio.Queue()

    async def changes(self, path: Path) -> AsyncIterator[None]:
        """As those of the directory."""
        self.watched.append(path)
        if self.faults:
            raise self.faults.pop(0)
        try:
            while True:
                await self._notices.get()
                yield
        finally:
            self.ended += 1

    def kubelet(self) -> None:
        """Kubelet starts: it removes all sockets and makes its own."""
        for socket in self.path.glob("*.sock"):
            socket.unlink()
        (self.path / KUBELET_SOCKET).write_text("")

    def notice(self) -> None:
        """Something changed."""
        self._notices.put_nowait("changed")


class Endpoint:
    """The socket of one resource, as a file."""

    def __init__(self, world: "World", resource: Resource) -> None:
        self.world = world
        self.resource = resource
        self.socket = world.directory.path / f"{resource}.sock"
        self.is_dropped = False

    def dropped(self) -> bool:
        """Whether kubelet has dropped it."""
        return self.is_dropped

    async def start(self) -> None:
        """Serve and register; what is refused leaves nothing served."""
        self.is_dropped = False
        self.socket.unlink(missing_ok=True)
        self.world.note(f"start {self.resource}")
        self.world.meanwhile()
        if self.resource in self.world.refuses:
            raise RegistrationError(f"{self.resource} is not wanted")
        self.socket.write_text("")

    async def stop(self) -> None:
        """Serve no more."""
        self.world.note(f"stop {self.resource}")
        self.socket.unlink(missing_ok=True)

    async def withdraw(self) -> None:
        """Offer nothing and serve no more."""
        self.world.note(f"withdraw {self.resource}")
        self.socket.unlink(missing_ok=True)


class World:
    """A registrar that runs, and what it did at which second."""

    def __init__(self, directory: Path, clock: FakeClock) -> None:
        self.directory = Directory(directory)
        self.clock = clock
        self.began = clock.seconds
        self.effects: list[Effect] = []
        self.refuses: set[Resource] = set()
        self.meanwhile: Callable[[], None] = lambda: None
        self.registrar = Registrar(
            directory,
            lambda resource: Endpoint(self, resource),  # type: ignore[arg-type,return-value]
            kubelet_restarted=lambda: self.note("kubelet restarted"),
            on_serving=lambda *, serving: self.note(f"serving {serving}"),
        )
        self.running = asyncio.create_task(self.registrar.run())

    def note(self, effect: str) -> None:
        self.effects.append((round(self.clock.seconds - self.began, 3), effect))

    async def until(self, seconds: float) -> list[Effect]:
        """What was done from now until this second after the start."""
        self.effects.clear()
        await asyncio.sleep(self.began + seconds - self.clock.seconds)
        return list(self.effects)

    async def end(self) -> list[Effect]:
        """Cancel it; returns what its end did."""
        self.effects.clear()
        self.running.cancel()
        await asyncio.wait({self.running})
        return sorted(self.effects)


@pytest.fixture
async def world(tmp_path: Path, clock: FakeClock) -> AsyncIterator[World]:
    """A node with a kubelet; the registrar has run for no time."""
    with pytest.MonkeyPatch.context() as patch:
        made = World(tmp_path, clock)
        patch.setattr("gpudeviceplugin.kubelet.registration.changes", made.directory.changes)
        made.directory.kubelet()
        yield made
        await made.end()


@pytest.fixture(autouse=True)
def logs() -> Iterator[list[Any]]:
    """What was logged."""
    with capture_logs() as logged:
        yield logged


async def test_what_is_registered_is_looked_at_every_five_seconds(world: World) -> None:
    """The periodic check finds a socket that was removed without a notification."""
    world.registrar.want([Resource.GPU])
    assert await world.until(0.5) == [(0, "start gpu"), (0, "serving True")]
    (world.directory.path / "gpu.sock").unlink()
    assert await world.until(LOOK_SECONDS - 0.5) == []
    assert await world.until(LOOK_SECONDS + 0.5) == [
        (LOOK_SECONDS, "start gpu"),
        (LOOK_SECONDS, "serving True"),
    ]


async def test_what_kubelet_has_dropped_is_registered_again(world: World, logs: list[Any]) -> None:
    """Its socket is there, and so is kubelet; the other resource stays as it is."""
    world.registrar.want([Resource.GPU, Resource.MEM])
    await world.until(1)
    world.registrar._serving[Resource.GPU].is_dropped = True  # type: ignore[attr-defined]
    done = [effect for _, effect in await world.until(LOOK_SECONDS + 1)]
    assert done == ["start gpu", "serving True"]
    assert [line["event"] for line in logs] == ["kubelet has dropped the registration"]
    assert {effect for _, effect in await world.until(3 * LOOK_SECONDS)} == {"serving True"}


async def test_a_refused_registration_is_tried_again_every_second(
    world: World, logs: list[Any]
) -> None:
    """Until kubelet takes it; the log has kubelet's reason."""
    world.refuses = {Resource.GPU}
    world.registrar.want([Resource.GPU])
    starts = [each for each in await world.until(2.5) if each[1] == "start gpu"]
    assert [at for at, _ in starts] == [0, RETRY_SECONDS, 2 * RETRY_SECONDS]
    assert logs[0] == {
        "event": "cannot register with kubelet",
        "log_level": "warning",
        "why": "gpu is not wanted",
    }


async def test_a_refused_registration_does_not_follow_its_own_steps(world: World) -> None:
    """Each attempt creates and removes sockets in the directory: none of that is a reason to retry.

    Another kubelet is one, without a pause.
    """
    world.refuses = {Resource.GPU}
    notices = iter(range(20))
    world.meanwhile = lambda: world.directory.notice() if next(notices, None) is not None else None
    world.registrar.want([Resource.GPU])
    starts = [at for at, effect in await world.until(2.5) if effect == "start gpu"]
    assert starts == [0, RETRY_SECONDS, 2 * RETRY_SECONDS]
    (world.directory.path / KUBELET_SOCKET).rename(world.directory.path / "old")
    world.directory.kubelet()
    world.refuses = set()
    world.directory.notice()
    assert (2.5, "serving True") in await world.until(2.6)


async def test_a_kubelet_that_has_accepted_at_last_is_followed_without_a_pause(
    world: World,
) -> None:
    """It refused before: what is removed since is registered again at its notice."""
    world.refuses = {Resource.GPU}
    world.registrar.want([Resource.GPU])
    await world.until(0.5)
    world.refuses = set()
    assert (RETRY_SECONDS, "serving True") in await world.until(RETRY_SECONDS + 0.5)
    (world.directory.path / "gpu.sock").unlink()
    world.directory.notice()
    assert (RETRY_SECONDS + 0.5, "start gpu") in await world.until(RETRY_SECONDS + 0.6)


async def test_a_kubelet_that_is_away_is_looked_for_every_second(
    tmp_path: Path, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is started before it has a socket, and its first start is not a restart."""
    world = World(tmp_path, clock)
    monkeypatch.setattr("gpudeviceplugin.kubelet.registration.changes", world.directory.changes)
    world.registrar.want([Resource.GPU])
    assert await world.until(1.5) == []
    world.directory.kubelet()
    assert await world.until(2.5) == [(2, "start gpu"), (2, "serving True")]
    await world.end()


async def test_a_notice_of_the_directory_is_acted_upon_at_once(
    world: World, logs: list[Any]
) -> None:
    """Kubelet restarted: the state learns it first, then everything is registered anew."""
    world.registrar.want([Resource.GPU])
    await world.until(2)
    (world.directory.path / KUBELET_SOCKET).rename(world.directory.path / "old")
    world.directory.kubelet()
    world.directory.notice()
    done = await world.until(2.1)
    assert done == [(2, "kubelet restarted"), (2, "start gpu"), (2, "serving True")]
    assert [line["event"] for line in logs] == ["kubelet restarted"]


async def test_a_restart_is_one_restart(world: World) -> None:
    """Once the new kubelet has accepted the plugin, the looks that follow do nothing."""
    world.registrar.want([Resource.GPU])
    await world.until(1)
    for second in (1, 11):
        (world.directory.path / KUBELET_SOCKET).rename(world.directory.path / f"old-{second}")
        world.directory.kubelet()
        world.directory.notice()
        done = [effect for _, effect in await world.until(second + 0.5)]
        assert done == ["kubelet restarted", "start gpu", "serving True"]
        done = [effect for _, effect in await world.until(second + 9)]
        assert set(done) <= {"serving True"}


async def test_the_directory_of_the_sockets_is_watched(world: World) -> None:
    """Once, while the watch lasts."""
    await world.until(1)
    assert world.directory.watched == [world.directory.path]


@pytest.mark.parametrize("error", [FileNotFoundError("no directory"), OSError("no inotify")])
async def test_a_watch_that_fails_is_begun_again(
    tmp_path: Path, clock: FakeClock, logs: list[Any], error: Exception
) -> None:
    """The directory may not be there yet; meanwhile the looks go on."""
    with pytest.MonkeyPatch.context() as patch:
        world = World(tmp_path, clock)
        patch.setattr("gpudeviceplugin.kubelet.registration.changes", world.directory.changes)
        world.directory.kubelet()
        world.directory.faults = [error]
        world.registrar.want([Resource.GPU])
        assert await world.until(LOOK_SECONDS - 1) == [(0, "start gpu"), (0, "serving True")]
        assert len(world.directory.watched) == 1
        await world.until(LOOK_SECONDS + 1)
        assert len(world.directory.watched) == 2
        assert logs[0]["event"] == "cannot watch kubelet's directory"
        assert (logs[0]["log_level"], logs[0]["why"]) == ("warning", str(error))
        await world.end()


async def test_what_is_wanted_is_followed_at_once(world: World) -> None:
    """The same request again starts nothing; another one does, and withdraws what it leaves out."""
    world.registrar.want([Resource.GPU])
    await world.until(1)
    world.registrar.want({Resource.GPU})
    assert await world.until(2) == []
    world.registrar.want([Resource.MEM])
    assert await world.until(3) == [(2, "withdraw gpu"), (2, "start gpu-mem"), (2, "serving True")]
    world.registrar.want([Resource.GPU])
    done = [effect for _, effect in await world.until(4)]
    assert done == ["withdraw gpu-mem", "start gpu", "serving True"]


async def test_a_wish_that_comes_during_a_registration_is_followed_after_it(world: World) -> None:
    """Not five seconds later."""
    world.meanwhile = lambda: world.registrar.want([Resource.GPU, Resource.MEM])
    world.registrar.want([Resource.GPU])
    assert (0, "start gpu-mem") in await world.until(1)


async def test_a_hangup_registers_everything_anew_once(world: World) -> None:
    """The sockets are there and kubelet is the same; the next look does nothing."""
    world.registrar.want([Resource.GPU, Resource.MEM])
    await world.until(1)
    world.registrar.again()
    done = await world.until(2)
    starts = {(1, "start gpu"), (1, "start gpu-mem")}
    assert set(done) == {*starts, (1, "serving True")}
    assert not starts & {(1, effect) for _, effect in await world.until(9)}


async def test_a_hangup_that_meets_a_refusal_still_registers_everything(world: World) -> None:
    """Kubelet refuses for a moment; what was not reached by then is registered anew as well."""
    world.registrar.want([Resource.GPU, Resource.MEM, Resource.CORE])
    await world.until(1)
    world.refuses = set(Resource)
    world.registrar.again()
    assert len(await world.until(1.5)) == 2
    world.refuses = set()
    done = {effect for _, effect in await world.until(3)}
    assert done == {"start gpu", "start gpu-mem", f"start {Resource.CORE}", "serving True"}


async def test_a_resource_that_goes_while_kubelet_is_away_is_withdrawn(world: World) -> None:
    """Kubelet comes back to what is wanted by then."""
    world.registrar.want([Resource.GPU])
    await world.until(1)
    (world.directory.path / KUBELET_SOCKET).unlink()
    world.registrar.want([])
    assert await world.until(2) == [(1, "withdraw gpu")]


async def test_an_end_stops_every_socket_and_the_watch(world: World) -> None:
    """Allocations of kubelet stay; no task watches its directory any more."""
    world.registrar.want([Resource.GPU, Resource.MEM])
    await world.until(1)
    assert await world.end() == [(1, "stop gpu"), (1, "stop gpu-mem")]
    await asyncio.sleep(0)
    assert world.directory.ended == 1
    assert world.running.cancelled()


async def test_a_node_is_ready_when_kubelet_takes_all_of_its_resources(world: World) -> None:
    """One of two is refused: it is tried again until kubelet takes it."""
    world.refuses = {Resource.MEM}
    world.registrar.want([Resource.MEM, Resource.GPU])
    done = [effect for _, effect in await world.until(0.7)]
    assert done[-2:] == ["start gpu-mem", "serving False"]
    assert not world.registrar.registered.is_set()
    world.refuses = set()
    done = [effect for _, effect in await world.until(2)]
    assert "start gpu-mem" in done
    assert done[-1] == "serving True"
    assert world.registrar.registered.is_set()
    assert len(list(world.directory.path.glob("gpu*.sock"))) == 2
