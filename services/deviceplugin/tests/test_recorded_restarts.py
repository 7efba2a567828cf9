"""A restart of a container is a start: its peak, and its number."""

from datetime import UTC, datetime

import pytest
from recorderworld import GI, World, pod, restarted

from gpucore.sizing.usage_history import START_SECONDS
from gpucore.units import PodUid
from gpudeviceplugin.node.pod_starts import MOST_RESTARTS


@pytest.fixture
def world() -> World:
    """A pod that ran before the plugin did, after its first sample."""
    made = World()
    made.state.on_replace((pod("a"),))
    made.holds("a")
    made.uses(a=GI)
    made.sampled()
    return made


def restart(world: World, *, ago: float = 0, container: str = "main") -> None:
    """Every event of a pod shows its last restart, so it comes twice."""
    at = datetime.fromtimestamp(world.now - ago, UTC).isoformat()
    for _ in range(2):
        world.recorder.seen(world.state.pods[PodUid("uid-a")], restarted(at, container))


def test_the_peak_after_a_restart_is_that_of_a_start(world: World) -> None:
    """A model is loaded again."""
    assert (world.history().starts, world.history().start_peak_bytes) == (0, 0)
    world.now += 60
    restart(world)
    world.sampled()
    assert world.history().start_peak_bytes == GI
    world.uses(a=GI // 2)
    world.sampled(START_SECONDS)
    assert (world.history().starts, world.history().pods) == (1, 1)
    world.sampled()
    assert world.history().starts == 1, "each restart counts once"


def test_a_restart_that_ended_during_its_start_is_no_start(world: World) -> None:
    """It did not show what a whole start needs: of two, the last one counts."""
    for _ in range(2):
        world.now += 60
        restart(world)
        world.sampled()
    world.sampled(START_SECONDS)
    assert world.history().starts == 1


def test_a_restart_before_the_plugin_saw_the_pod_does_not_count(world: World) -> None:
    """It was not measured."""
    restart(world, ago=600)
    world.sampled(START_SECONDS)
    assert (world.history().starts, world.history().start_peak_bytes) == (0, 0)


def test_a_restart_of_another_container_does_not_count(world: World) -> None:
    """It has no GPU."""
    world.now += 60
    restart(world, container="log")
    world.sampled(START_SECONDS)
    assert world.history().starts == 0


def test_a_container_that_ends_again_and_again_counts_a_bounded_number(world: World) -> None:
    """One pod alone would give a recommendation high confidence."""
    for _ in range(MOST_RESTARTS + 3):
        world.now += 1
        restart(world)
        world.sampled(START_SECONDS)
    assert world.history().starts == MOST_RESTARTS


@pytest.mark.parametrize("line", [b"", b"{", b'{"object": {}}', restarted("now")])
def test_an_event_without_a_time_is_no_restart(world: World, line: bytes) -> None:
    """Nothing is counted, and nothing fails."""
    world.recorder.seen(world.state.pods[PodUid("uid-a")], line)
    world.sampled(START_SECONDS)
    assert world.history().starts == 0


def test_a_time_in_the_future_does_not_count(world: World) -> None:
    """The clock was set back; it would hide every restart until then."""
    restart(world, ago=-3600)
    world.sampled(START_SECONDS)
    assert world.history().starts == 0
    world.now += 1
    restart(world)
    world.sampled(START_SECONDS)
    assert world.history().starts == 1
