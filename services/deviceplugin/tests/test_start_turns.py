"""Model servers of one namespace start on a GPU one after the other."""

import json
from datetime import UTC, datetime, timedelta

import pytest
from servicercalls import node

from gpucore.node.allocation.device_ids import Resource
from gpucore.node.allocation.holdings import Holder
from gpucore.units import GpuIndex, NodeName, PodUid
from gpucore.wire.pod.spec import Pod
from gpudeviceplugin.isolation.start_turns import StartTurns
from gpudeviceplugin.state import NodeState

START = datetime(2026, 11, 1, tzinfo=UTC)
FIRST, SECOND = GpuIndex(0), GpuIndex(1)


class World:
    """Turns with a clock that a test moves."""

    def __init__(self) -> None:
        self.now = 0.0
        self.state: NodeState = node()
        self.turns = self.restarted()

    def restarted(self) -> StartTurns:
        """The turns of a new process, without those of the earlier one."""
        self.turns = StartTurns(
            self.state, clock=lambda: self.now, wall=lambda: START.timestamp() + self.now
        )
        return self.turns

    def listed(self, pod: Pod, *, ready: bool, started: float = 0.0, running: bool = True) -> None:
        """The watch lists the pods of the node again, with this one on the first GPU."""
        at = (START + timedelta(seconds=started)).strftime("%Y-%m-%dT%H:%M:%SZ")
        state = {"running": {"startedAt": at}} if running else {"terminated": {}}
        status = {"containerStatuses": [{"ready": ready, "state": state}]}
        self.turns.listed(
            json.dumps({"items": [{"metadata": {"uid": pod.uid}, "status": status}]}).encode()
        )
        ids = self.state.matcher.tables[Resource.MEM].ids[FIRST][:1]
        self.state.matcher.holdings.take(Resource.MEM, ids, Holder(pod.namespace, pod.name, "c0"))

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
    """A pod cannot delay pods of other namespaces."""
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


def test_a_restarted_plugin_knows_who_is_starting(world: World) -> None:
    """By the pods that it lists; the seconds count from the start of the container."""
    a, b = world.pod("a"), world.pod("b")
    world.turns.take(a, [FIRST])
    world.now = 100.0
    world.restarted()
    world.listed(a, ready=False)
    world.status(a, running=True)
    assert world.turns.take(b, [SECOND]) == ""
    assert world.turns.take(b, [FIRST]).endswith(
        "team/a is starting on the same GPU, for 500 s at most"
    )
    world.status(a, running=True, ready=True)
    assert world.turns.take(b, [FIRST]) == ""


@pytest.mark.parametrize("how", ["ready", "ended", "too long ago", "no annotation", "gone"])
def test_a_restarted_plugin_waits_for_no_other_pod(world: World, how: str) -> None:
    """A pod that is ready, has ended, or started longer ago than its seconds has no turn."""
    a, b = world.pod("a", seconds="" if how == "no annotation" else "600"), world.pod("b")
    world.now = 700.0 if how == "too long ago" else 100.0
    world.listed(a, ready=how == "ready", running=how != "ended")
    if how == "gone":
        del world.state.pods[a.uid]
    assert world.turns.take(b, [FIRST]) == ""


@pytest.mark.parametrize("how", ["ready", "ended"])
def test_a_listed_pod_that_is_done_before_anybody_asks_has_no_turn(world: World, how: str) -> None:
    """The watch reports it between the list and the next start."""
    a, b = world.pod("a"), world.pod("b")
    world.listed(a, ready=False)
    world.status(a, running=how == "ready", ready=how == "ready")
    assert world.turns.take(b, [FIRST]) == ""


def test_a_start_time_ahead_of_this_clock_makes_no_turn_longer(world: World) -> None:
    """The node's clock was set back."""
    a, b = world.pod("a"), world.pod("b")
    world.listed(a, ready=False, started=5000.0)
    assert world.turns.take(b, [FIRST]).endswith("for 600 s at most")
    world.now = 600.0
    assert world.turns.take(b, [FIRST]) == ""


def test_a_container_that_starts_again_begins_the_turn_anew(world: World) -> None:
    """It failed before it ran, and kubelet tries again: thirty seconds from then on."""
    a, b = world.pod("a"), world.pod("b")
    world.turns.take(a, [FIRST])
    world.now = 20.0
    assert world.turns.take(a, [FIRST]) == ""
    world.now = 49.0
    assert world.turns.take(b, [FIRST]) != ""
    world.now = 50.0
    assert world.turns.take(b, [FIRST]) == ""


def test_a_status_that_only_a_list_shows_ends_a_turn(world: World) -> None:
    """The watch was interrupted while the pod became ready."""
    a, b = world.pod("a"), world.pod("b")
    world.turns.take(a, [FIRST])
    world.status(a, running=True)
    world.listed(a, ready=True)
    assert world.turns.take(b, [FIRST]) == ""


def test_a_listed_time_that_cannot_be_read_counts_as_now(world: World) -> None:
    """Text of any kind raises nothing."""
    a, b = world.pod("a"), world.pod("b")
    world.listed(a, ready=False)
    for time in ("soon", "", "9999-12-31T23:59:59Z"):
        state = {"running": {"startedAt": time}}
        pod = {
            "metadata": {"uid": a.uid},
            "status": {"containerStatuses": [{"ready": False, "state": state}]},
        }
        world.turns.listed(json.dumps({"items": [pod]}).encode())
        assert world.turns.take(b, [FIRST]).endswith("for 600 s at most")
    for text in (b"", b"{", b'{"items": null}', b"[" * 100_000):
        world.turns.listed(text)


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
