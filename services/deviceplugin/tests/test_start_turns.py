"""Model servers of one namespace start on a GPU one after the other."""

import json

import pytest
from servicercalls import node

from gpucore.units import GpuIndex, NodeName, PodUid
from gpucore.wire.pods import Pod
from gpudeviceplugin.isolation.start_turns import StartTurns
from gpudeviceplugin.state import NodeState

FIRST, SECOND = GpuIndex(0), GpuIndex(1)


class World:
    """Turns with a clock that a test moves."""

    def __init__(self) -> None:
        self.now = 0.0
        self.state: NodeState = node()
        self.turns = StartTurns(self.state, clock=lambda: self.now)

    def pod(self, name: str, *, namespace: str = "team", seconds: str = "600") -> Pod:
        """A bound pod that takes a turn of so many seconds."""
        notes = {"gpushare/start-turn": seconds} if seconds else {}
        pod = Pod(
            PodUid(f"uid-{name}"), namespace, name, NodeName("n1"), "Pending", annotations=notes
        )
        self.state.pods[pod.uid] = pod
        return pod

    def status(self, pod: Pod, *, running: bool, ready: bool = False) -> None:
        """Kubelet writes this."""
        state = {"running": {"startedAt": "x"}} if running else {"waiting": {"reason": "x"}}
        status = {"containerStatuses": [{"ready": ready, "state": state}]}
        self.turns.seen(
            pod, json.dumps({"type": "MODIFIED", "object": {"status": status}}).encode()
        )


@pytest.fixture
def world() -> World:
    """No pod has a turn."""
    return World()


def test_the_next_pod_starts_once_the_first_is_ready(world: World) -> None:
    """The sentence names the pod that it waits for."""
    a, b = world.pod("a"), world.pod("b")
    assert world.turns.take(a, [FIRST]) == ""
    words = "waits for its turn: pod team/a is starting on the same GPU, for 600 s at most"
    assert world.turns.take(b, [FIRST]) == words
    world.status(a, running=True)
    world.now = 100.0
    assert world.turns.take(b, [FIRST, SECOND]).endswith("for 500 s at most")
    world.status(a, running=True, ready=True)
    assert world.turns.take(b, [FIRST]) == ""


def test_a_holder_that_is_killed_has_no_turn(world: World) -> None:
    """Kubelet sees that the container ended; it may take the next turn as any other pod."""
    a, b = world.pod("a"), world.pod("b")
    world.turns.take(a, [FIRST])
    world.status(a, running=True)
    world.status(a, running=False)
    assert world.turns.take(b, [FIRST]) == ""
    assert world.turns.take(a, [FIRST]) != ""


def test_other_gpus_other_namespaces_and_other_pods_do_not_wait(world: World) -> None:
    """Nobody can hold up the pods of others."""
    world.turns.take(world.pod("a"), [FIRST])
    assert world.turns.take(world.pod("b"), [SECOND]) == ""
    assert world.turns.take(world.pod("c", namespace="other"), [FIRST]) == ""
    assert world.turns.take(world.pod("d", seconds=""), [FIRST]) == ""
    assert world.turns.take(world.pod("e", seconds="soon"), [FIRST]) == ""
    assert world.turns.take(world.pod("a"), [FIRST]) == ""  # a restarted container of the same pod


@pytest.mark.parametrize("how", ["gone", "finished", "never runs", "time is over"])
def test_a_turn_that_nobody_uses_ends(world: World, how: str) -> None:
    """Every turn has an end, without a word from its pod."""
    a, b = world.pod("a"), world.pod("b")
    world.turns.take(a, [FIRST])
    if how == "gone":
        del world.state.pods[a.uid]
    if how == "finished":
        world.state.pods[a.uid] = Pod(a.uid, "team", "a", NodeName("n1"), "Failed")
    if how == "never runs":
        world.status(a, running=False)
        world.now = 29.0
        assert world.turns.take(b, [FIRST]) != ""
        world.now = 30.0
    if how == "time is over":
        world.status(a, running=True)
        world.now = 599.0
        assert world.turns.take(b, [FIRST]) != ""
        world.now = 600.0
    assert world.turns.take(b, [FIRST]) == ""


def test_no_annotation_makes_a_turn_longer_than_an_hour(world: World) -> None:
    """Whatever its author writes."""
    world.turns.take(world.pod("a", seconds="999999"), [FIRST])
    assert world.turns.take(world.pod("b"), [FIRST]).endswith("for 3600 s at most")


def test_text_that_is_no_status_ends_no_turn(world: World) -> None:
    """It is as if kubelet had written nothing."""
    a = world.pod("a")
    world.turns.take(a, [FIRST])
    for line in (b"", b"{", b'{"object": {"status": {"containerStatuses": null}}}', b"[" * 100_000):
        world.turns.seen(a, line)
    assert world.turns.take(world.pod("b"), [FIRST]) != ""
