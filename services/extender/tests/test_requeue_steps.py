"""Sending refused pods back, step by step: which pods, in which order, when, and when never."""

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from itertools import pairwise
from typing import Any

import pytest
import structlog
from decoded import a_node, a_pod, state_of
from objects import Object, placed, pod

from gpucore.accounting.node_info import NodeInfo
from gpucore.model import Placement
from gpucore.scheduling import requeue as queue
from gpucore.scheduling.grouping import Rules
from gpucore.units import GpuIndex, NodeName, PodUid
from gpucore.wire.pod_groups import PodGroup
from gpuextender import metrics
from gpuextender.scheduling import requeue
from gpuextender.scheduling.gangs import Gangs
from gpuextender.scheduling.requeue import Requeue
from gpuextender.state import State
from gpukube.errors import UnreachableError
from gpukube.testing.clock import FakeClock
from gpukube.testing.scripted import Reply, ScriptedClient, failure

GPU = GpuIndex(0)


class Bench:
    """Nodes of one GPU of 8 units, all of them full, and the pods that were refused."""

    def __init__(self, clock: FakeClock, *nodes: str) -> None:
        self.clock = clock
        self.state: State = state_of(*(a_node(name, 8) for name in nodes), clock=clock.now_ns)
        self.api = ScriptedClient()
        gangs = Gangs(self.state, Rules(), clock=clock.now_ns)
        self.requeue = Requeue(self.state, self.api, gangs)
        self.state.add_event_handler(self.requeue.node_changed, self.requeue.pod_came)
        for name in nodes:
            self.state.pod_changed(a_pod(self.holder(name)))

    def holder(self, node: str) -> Object:
        """The pod that fills a node."""
        return placed(pod(f"holder-{node}", 8, uid=f"holder-{node}"), node, 0)

    def free(self, node: str) -> None:
        """The pod that fills a node ends."""
        self.state.pod_gone(a_pod(self.holder(node)))

    def refuse(
        self, item: Object, *nodes: str, judged: int | None = None, paused: bool = False
    ) -> None:
        """Filter refused a pod on all of these nodes."""
        self.state.pod_changed(a_pod(item))
        pending = self.state.saw(a_pod(item))
        assert pending.pod_request is not None
        names = [NodeName(name) for name in nodes]
        change = self.requeue.change if judged is None else judged
        self.requeue.refused(pending, pending.pod_request, names, judged=change, paused=paused)

    def create(self, *items: Object) -> None:
        """Pods that the watch has shown, and that no filter was called for."""
        for item in items:
            self.state.pod_changed(a_pod(item))

    def reply(self, *replies: Reply) -> None:
        """The next replies of the API server."""
        self.api.replies.extend(replies)

    def sent(self) -> list[str]:
        """Names of the pods that were sent back, in order."""
        return [one.path.split("/")[-2] for one in self.api.requests]


def waits(name: str, mem: int = 4, **more: Any) -> Object:
    """A pod that waits."""
    return pod(name, mem, uid=name, **more)


def member(name: str) -> Object:
    """A pod of a gang of two."""
    return waits(name, 6, labels={"gpu-topology": "g", "gpu-topology-replica": "2"})


@pytest.fixture(autouse=True)
def one_clock(monkeypatch: pytest.MonkeyPatch, clock: FakeClock) -> None:
    """The annotation has the time of the loop."""
    monkeypatch.setattr(requeue, "time_ns", clock.now_ns)


async def test_the_patch_changes_one_annotation_of_the_very_pod(clock: FakeClock) -> None:
    """It goes to the status, with the UID as a precondition, and is counted."""
    bench = Bench(clock, "n")
    bench.refuse(waits("p"), "n")
    await bench.requeue.look()
    assert bench.sent() == []
    bench.free("n")
    bench.reply(b"{}")
    before = metrics.REQUEUES.labels("written")._value.get()
    assert await bench.requeue.look()
    [request] = bench.api.requests
    path = "/api/v1/namespaces/default/pods/p/status"
    assert (request.method, request.path) == ("PATCH", path)
    annotations = {"gpushare/retry": str(clock.now_ns())}
    assert request.body == {"metadata": {"uid": "p", "annotations": annotations}}
    assert metrics.REQUEUES.labels("written")._value.get() == before + 1


async def test_a_pod_waits_longer_after_each_time(clock: FakeClock) -> None:
    """One second, two, four, up to fifteen; a change within the wait is not lost."""
    bench = Bench(clock, "n")
    bench.refuse(waits("p"), "n")
    at: list[float] = []
    for _ in range(7):
        bench.free("n")
        bench.reply(b"{}")
        while not bench.api.requests:
            assert await bench.requeue.look()
            clock.seconds += 0.25
        at.append(bench.api.requests.pop().at)
        bench.state.pod_changed(a_pod(bench.holder("n")))
        bench.refuse(waits("p"), "n")
    pauses = [later - earlier for earlier, later in pairwise(at)]
    assert pauses == [1.0, 2.0, 4.0, 8.0, 15.0, 15.0]


async def test_a_pod_that_was_accepted_is_not_sent_back(clock: FakeClock) -> None:
    """Filter found a node for it meanwhile."""
    bench = Bench(clock, "n")
    bench.refuse(waits("p"), "n")
    bench.requeue.accepted(bench.state.saw(a_pod(waits("p"))))
    bench.free("n")
    assert not await bench.requeue.look()
    assert bench.sent() == []


@pytest.mark.parametrize("end", ["deleted", "placed", "being bound", "gated", "again"])
async def test_a_pod_that_does_not_wait_any_more_is_forgotten(clock: FakeClock, end: str) -> None:
    """Also one that was created again under its name: it has another UID."""
    bench = Bench(clock, "n")
    item = waits("p")
    bench.refuse(item, "n")
    if end == "placed":
        bench.state.pod_changed(a_pod(placed(item, "elsewhere", 0)))
    elif end == "being bound":
        bench.state.assume(a_pod(item), Placement(NodeName("m"), mem={GPU: 4}), now_ns=1)
    elif end == "gated":
        item["spec"]["schedulingGates"] = [{"name": "quota"}]
        bench.state.pod_changed(a_pod(item))
    else:
        bench.state.pod_gone(a_pod(item))
    if end == "again":
        bench.state.pod_changed(a_pod(pod("p", 4, uid="new")))
    bench.free("n")
    assert not await bench.requeue.look()
    assert bench.sent() == []


async def test_only_nodes_that_the_scheduler_offered_count(clock: FakeClock) -> None:
    """It left the other one out for reasons of its own."""
    bench = Bench(clock, "a", "b", "c")
    bench.refuse(waits("p"), "a", "c")
    bench.free("b")
    await bench.requeue.look()
    assert bench.sent() == []
    bench.free("c")
    bench.reply(b"{}")
    await bench.requeue.look()
    assert bench.sent() == ["p"]


async def test_pods_of_higher_priority_go_first_and_only_as_many_as_fit(clock: FakeClock) -> None:
    """The free memory is counted for those that are sent back, on all nodes together."""
    bench = Bench(clock, "a", "b")
    for name, priority in (("low", 1), ("high", 9), ("middle", 5)):
        bench.refuse(waits(name, 8, priority=priority), "a", "b")
    bench.free("a")
    bench.free("b")
    bench.reply(b"{}", b"{}")
    assert await bench.requeue.look()
    assert bench.sent() == ["high", "middle"]


async def test_only_so_many_pods_are_remembered(
    clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The one that was refused least recently is forgotten."""
    monkeypatch.setattr(queue, "REMEMBERED", 2)
    bench = Bench(clock, "n")
    for name in ("x", "y", "x", "z"):
        bench.refuse(waits(name, 2), "n")
    bench.free("n")
    bench.reply(b"{}", b"{}")
    await bench.requeue.look()
    assert sorted(bench.sent()) == ["x", "z"]


async def test_a_change_that_the_refusal_has_seen_is_no_reason_to_go_back(
    clock: FakeClock,
) -> None:
    """The node had room when the pod was refused, so the pod was refused for something else."""
    bench = Bench(clock, "a", "b")
    bench.free("a")
    bench.refuse(waits("p"), "a")
    bench.refuse(waits("old"), "b", judged=2)
    assert not await bench.requeue.look()
    assert bench.sent() == []


async def test_a_node_beyond_those_that_were_offered_does_not_count(clock: FakeClock) -> None:
    """It was there when the pod was refused, and its number is beyond the others'."""
    bench = Bench(clock, "a", "b")
    bench.refuse(waits("p"), "a")
    bench.free("b")
    await bench.requeue.look()
    assert bench.sent() == []


async def test_pods_of_several_nodes_go_back_in_the_order_of_their_priority(
    clock: FakeClock,
) -> None:
    """The node that changed last is looked at first, and its pod does not go first for that."""
    bench = Bench(clock, "a", "b")
    bench.refuse(waits("low", 8, priority=1), "b")
    bench.refuse(waits("high", 8, priority=9), "a")
    bench.free("a")
    bench.free("b")
    bench.reply(b"{}", b"{}")
    await bench.requeue.look()
    assert bench.sent() == ["high", "low"]


async def test_room_that_came_while_the_pod_was_judged_is_not_lost(clock: FakeClock) -> None:
    """The refusal is older than the room, so a look follows without any further event."""
    bench = Bench(clock, "n")
    judged = bench.requeue.change
    bench.free("n")
    bench.reply(b"{}")
    task = asyncio.create_task(bench.requeue.run())
    await asyncio.sleep(1)
    assert bench.sent() == []
    bench.refuse(waits("p"), "n", judged=judged)
    await asyncio.sleep(0.1)
    assert bench.sent() == []
    await asyncio.sleep(0.1)
    assert bench.sent() == ["p"]
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_a_change_is_followed_by_a_look_after_the_grace_time(clock: FakeClock) -> None:
    """A scheduler that heard of the change itself is quicker than the patch."""
    bench = Bench(clock, "n")
    task = asyncio.create_task(bench.requeue.run())
    bench.refuse(waits("p"), "n")
    await asyncio.sleep(5)
    bench.reply(b"{}")
    began = clock.now()
    bench.free("n")
    await asyncio.sleep(2)
    [request] = bench.api.requests
    assert request.at - began == pytest.approx(requeue.GRACE_SECONDS)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_a_pod_that_is_nominated_goes_back_all_the_same(clock: FakeClock) -> None:
    """Its scheduler may still refuse it."""
    bench = Bench(clock, "n")
    item = waits("p")
    bench.refuse(item, "n")
    bench.free("n")
    bench.state.nominate(a_pod(item), Placement(NodeName("n"), mem={GPU: 4}), now_ns=1)
    bench.reply(b"{}")
    await bench.requeue.look()
    assert bench.sent() == ["p"]


async def test_a_pod_is_sent_back_once_for_a_change(clock: FakeClock) -> None:
    """Its scheduler may not be able to place it; the next change counts again."""
    bench = Bench(clock, "n")
    bench.refuse(waits("p"), "n")
    bench.free("n")
    bench.reply(b"{}", b"{}")
    await bench.requeue.look()
    clock.seconds += requeue.LONGEST_SECONDS
    assert not await bench.requeue.look()
    assert bench.sent() == ["p"]
    bench.requeue.node_changed(NodeName("n"))
    await bench.requeue.look()
    assert bench.sent() == ["p", "p"]


async def test_of_pods_with_one_priority_the_oldest_goes_first(clock: FakeClock) -> None:
    """There is room for one of them."""
    bench = Bench(clock, "n")
    for name, day in (("young", 3), ("old", 1), ("middle", 2)):
        item = waits(name, 8)
        item["metadata"]["creationTimestamp"] = f"2026-11-0{day}T00:00:00Z"
        bench.refuse(item, "n")
    bench.free("n")
    bench.reply(b"{}")
    await bench.requeue.look()
    assert bench.sent() == ["old"]
    assert [one.name for one in bench.requeue.refused_pods()] == ["old", "middle", "young"]


async def test_whoever_nominates_learns_which_pods_were_refused(clock: FakeClock) -> None:
    """Until a node can take the pod."""
    bench, refused = Bench(clock, "n"), list[str]()
    bench.requeue.on_refused = lambda pending: refused.append(pending.pod.name)
    bench.refuse(waits("p"), "n")
    assert refused == ["p"]
    assert bench.requeue.is_refused(PodUid("p"))
    bench.requeue.accepted(bench.state.saw(a_pod(waits("p"))))
    assert not bench.requeue.is_refused(PodUid("p"))


@pytest.mark.parametrize("error", [failure(503, "busy"), UnreachableError("reset")])
async def test_a_patch_that_fails_is_sent_again_after_the_wait(
    clock: FakeClock, error: Exception
) -> None:
    """The pod keeps its turn although nothing else changes."""
    bench = Bench(clock, "n")
    task = asyncio.create_task(bench.requeue.run())
    await asyncio.sleep(0)
    bench.refuse(waits("p"), "n")
    bench.reply(error, b"{}")
    before = metrics.REQUEUES.labels("failed")._value.get()
    bench.free("n")
    with structlog.testing.capture_logs() as logs:
        await asyncio.sleep(20)
    assert bench.sent() == ["p", "p"]
    first, second = bench.api.requests
    assert 1.0 <= second.at - first.at <= 2.5
    assert metrics.REQUEUES.labels("failed")._value.get() == before + 1
    assert [(line["event"], line["pod"]) for line in logs] == [("pod not sent back", "default/p")]
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_a_pod_that_the_server_does_not_have_is_forgotten(clock: FakeClock) -> None:
    """Its deletion event comes later; nothing is sent about it again."""
    bench = Bench(clock, "n")
    bench.refuse(waits("p"), "n")
    bench.free("n")
    bench.reply(failure(404))
    await bench.requeue.look()
    clock.seconds += 60
    bench.requeue.node_changed(NodeName("n"))
    assert not await bench.requeue.look()
    assert bench.sent() == ["p"]


async def test_many_pods_go_back_at_a_bounded_rate(clock: FakeClock) -> None:
    """A hundred at once, then fifty a second."""
    names = [f"n{number}" for number in range(125)]
    bench = Bench(clock, *names)
    for name in names:
        bench.refuse(waits(f"p-{name}", 8), *names)
    for name in names:
        bench.free(name)
    bench.reply(*[b"{}"] * len(names))
    began = clock.now()
    assert await bench.requeue.look()
    assert len(bench.sent()) == requeue.BURST == 100
    await bench.requeue.look()
    assert len(bench.sent()) == 125
    assert clock.now() - began == pytest.approx(25 / requeue.PER_SECOND)


async def test_many_pods_of_one_namespace_delay_those_of_others_by_one_look(
    clock: FakeClock,
) -> None:
    """A busy API server takes long for each; a pod of higher priority that came is next."""
    names = [f"n{number}" for number in range(125)]
    bench = Bench(clock, *names)
    for name in names:
        bench.refuse(waits(f"p-{name}", 8), *names)
    for name in names:
        bench.free(name)
    bench.reply(*[b"{}"] * (len(names) + 1))
    await bench.requeue.look()
    bench.refuse(waits("other", 8, namespace="other", priority=1), *names, judged=0)
    await bench.requeue.look()
    assert bench.sent()[requeue.BURST] == "other"
    assert len(bench.sent()) == 126


async def test_a_gang_goes_back_together_once_it_fits(clock: FakeClock) -> None:
    """Room for one of two members is not enough; nothing is reserved by the look."""
    bench = Bench(clock, "a", "b")
    bench.create(member("g0"), member("g1"))
    for name in ("g0", "g1"):
        bench.refuse(member(name), "a", "b")
    bench.free("a")
    await bench.requeue.look()
    assert bench.sent() == []
    bench.free("b")
    bench.reply(b"{}", b"{}")
    await bench.requeue.look()
    assert sorted(bench.sent()) == ["g0", "g1"]
    assert not bench.state.ledger.allocations()


async def test_a_gang_goes_back_when_its_last_member_comes(clock: FakeClock) -> None:
    """The new pod is what changed, not a node."""
    bench = Bench(clock, "a", "b")
    bench.free("a")
    bench.free("b")
    bench.refuse(member("g0"), "a", "b")
    await bench.requeue.look()
    assert bench.sent() == []
    bench.state.pod_changed(a_pod(member("g1")))
    bench.reply(b"{}")
    await bench.requeue.look()
    assert bench.sent() == ["g0"]


async def test_a_gang_that_is_complete_goes_back_although_it_does_not_fit(
    clock: FakeClock,
) -> None:
    """Its scheduler reported that pods are missing, and has another reason now."""
    bench = Bench(clock, "a", "b")
    bench.refuse(member("g0"), "a", "b")
    bench.state.pod_changed(a_pod(member("g1")))
    bench.reply(b"{}")
    await bench.requeue.look()
    assert bench.sent() == ["g0"]
    bench.refuse(member("g0"), "a", "b")
    clock.seconds += requeue.LONGEST_SECONDS
    bench.requeue.pod_came()
    assert not await bench.requeue.look()
    assert bench.sent() == ["g0"]


@pytest.mark.parametrize("late", ["g0", "g2"])
async def test_pods_refused_as_incomplete_go_back_whichever_is_tried_first(
    clock: FakeClock, late: str
) -> None:
    """The last member has the reason that holds now, and may be the first of the gang by UID."""
    bench = Bench(clock, "a", "b")
    bench.refuse(member("g1"), "a", "b")
    bench.refuse(member(late), "a", "b")
    bench.requeue.node_changed(NodeName("a"))
    bench.requeue.pod_came()
    bench.reply(b"{}", b"{}")
    await bench.requeue.look()
    assert "g1" in bench.sent()


async def test_one_gang_is_planned_at_a_time(clock: FakeClock) -> None:
    """The look reports that there is more to do, and the next one goes on."""
    bench = Bench(clock, "a", "b")
    other = {"gpu-topology": "h", "gpu-topology-replica": "2"}
    bench.create(member("g0"), member("g1"))
    bench.create(*(waits(name, 2, labels=other) for name in ("h0", "h1")))
    bench.refuse(member("g0"), "a", "b")
    bench.refuse(member("g1"), "a", "b")
    for name in ("h0", "h1"):
        bench.refuse(waits(name, 2, labels=other), "a", "b")
    bench.free("a")
    bench.reply(b"{}", b"{}")
    assert await bench.requeue.look()
    assert await bench.requeue.look()
    assert sorted(bench.sent()) == ["h0", "h1"]


async def test_a_gang_that_never_fits_keeps_no_other_from_its_plan(clock: FakeClock) -> None:
    """Nodes change all the time, so that it may fit at each look, and its priority is higher."""
    bench = Bench(clock, "a")
    never = {"gpu-topology": "never", "gpu-topology-replica": "2"}
    other = {"gpu-topology": "other", "gpu-topology-replica": "2"}
    items = [waits(name, 6, labels=never, priority=9) for name in ("never0", "never1")]
    items += [waits(name, 2, labels=other) for name in ("other0", "other1")]
    bench.create(*items)
    for item in items:
        bench.refuse(item, "a")
    bench.free("a")
    bench.reply(b"{}", b"{}")
    for _ in range(2):
        await bench.requeue.look()
        bench.requeue.node_changed(NodeName("a"))
    assert sorted(bench.sent()) == ["other0", "other1"]


async def test_pods_of_gangs_are_evaluated_by_their_own_requests(clock: FakeClock) -> None:
    """A pod that no node can hold says nothing about the smaller pods of another gang."""
    bench = Bench(clock, "a")
    large = {"gpu-topology": "large", "gpu-topology-replica": "2"}
    small = {"gpu-topology": "small", "gpu-topology-replica": "2"}
    items = [waits(name, 9, labels=large, priority=9) for name in ("large0", "large1")]
    items += [waits(name, 2, labels=small) for name in ("small0", "small1")]
    bench.create(*items)
    for item in items:
        bench.refuse(item, "a")
    bench.free("a")
    bench.reply(b"{}", b"{}")
    await bench.requeue.look()
    assert sorted(bench.sent()) == ["small0", "small1"]


class Evaluations:
    """Nodes and pods that looks evaluate, in order."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.seen: list[tuple[str, str]] = []
        monkeypatch.setattr(requeue, "fitting", self._fitting)

    def _fitting(self, node_info: NodeInfo, pods: Iterable[queue.RefusedPod]) -> list[PodUid]:
        listed = list(pods)
        self.seen += [(node_info.name, one.uid) for one in listed]
        return queue.fitting(node_info, listed)

    def of_look(self) -> list[tuple[str, str]]:
        """What was evaluated since the last call."""
        found, self.seen = self.seen, []
        return found


@pytest.mark.parametrize("gang", [False, True])
async def test_a_change_that_was_looked_at_in_vain_is_not_looked_at_again(
    clock: FakeClock, monkeypatch: pytest.MonkeyPatch, *, gang: bool
) -> None:
    """Else each change of a node evaluates all that changed since the oldest refusal."""
    bench, evaluations = Bench(clock, "a", "b", "c"), Evaluations(monkeypatch)
    bench.refuse(member("p") if gang else waits("p", 9), "a", "b", "c")
    for name in ("a", "b"):
        bench.state.pod_changed(a_pod(placed(pod(f"on-{name}", 1, uid=f"on-{name}"), name, 0)))
    await bench.requeue.look()
    assert evaluations.of_look() == [("b", "p"), ("a", "p")]
    bench.state.pod_gone(a_pod(placed(pod("on-a", 1, uid="on-a"), "a", 0)))
    await bench.requeue.look()
    assert evaluations.of_look() == [("a", "p")]
    await bench.requeue.look()
    assert evaluations.of_look() == []


async def test_a_pod_that_was_kept_out_by_one_that_went_back_is_looked_at_again(
    clock: FakeClock,
) -> None:
    """The first one may be bound elsewhere: what is free is still there for the second."""
    bench = Bench(clock, "a")
    for name, priority in (("first", 9), ("second", 1)):
        bench.refuse(waits(name, 6, priority=priority), "a")
    bench.free("a")
    bench.reply(b"{}", b"{}")
    await bench.requeue.look()
    assert bench.sent() == ["first"]
    bench.requeue.accepted(bench.state.saw(a_pod(waits("first", 6))))
    await bench.requeue.look()
    assert bench.sent() == ["first", "second"]


async def test_equal_pods_of_gangs_are_evaluated_once_for_a_node(
    clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job has a thousand of them."""
    bench, evaluations = Bench(clock, "a"), Evaluations(monkeypatch)
    pods = [member(f"p{number}") for number in range(9)]
    bench.create(*pods)
    for one in pods:
        bench.refuse(one, "a")
    bench.state.pod_changed(a_pod(placed(pod("on-a", 1, uid="on-a"), "a", 0)))
    await bench.requeue.look()
    assert len(evaluations.of_look()) == 1


async def test_other_work_goes_on_while_gangs_are_looked_at(
    clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Filter is answered between two pods."""
    monkeypatch.setattr("gpukube.server.time_slices.SECONDS", 0)
    bench = Bench(clock, "a")
    pods = [member(f"p{number}") for number in range(9)]
    bench.create(*pods)
    for one in pods:
        bench.refuse(one, "a")
    bench.state.pod_changed(a_pod(placed(pod("on-a", 1, uid="on-a"), "a", 0)))
    look, turns = asyncio.ensure_future(bench.requeue.look()), 0
    while not look.done():
        turns += 1
        await asyncio.sleep(0)
    assert turns > 9


def grouped(name: str, mem: int = 6) -> Object:
    """A pod of the PodGroup ``g``."""
    item = waits(name, mem)
    item["spec"]["schedulingGroup"] = {"podGroupName": "g"}
    return item


async def started(look: Coroutine[Any, Any, bool]) -> asyncio.Future[bool]:
    """A look that has begun, and that lets other requests run before it plans a gang."""
    task = asyncio.ensure_future(look)
    await asyncio.sleep(0)
    assert not task.done()
    return task


@pytest.mark.parametrize("end", ["being bound", "bound", "deleted"])
@pytest.mark.parametrize("gang", [member, grouped])
async def test_a_pod_that_is_placed_during_a_look_is_left_out(
    clock: FakeClock,
    monkeypatch: pytest.MonkeyPatch,
    gang: Callable[[str], Object],
    end: str,
) -> None:
    """The look goes on with the other pods of its gang, which keep their turn."""
    monkeypatch.setattr("gpukube.server.time_slices.SECONDS", 0)
    bench = Bench(clock, "a", "b", "c")
    bench.state.gangs.groups.on_update(PodGroup("default", "g", 2))
    first, *others = items = [gang(name) for name in ("g0", "g1", "g2")]
    bench.create(*items)
    for item in items:
        bench.refuse(item, "a", "b", "c")
    for name in ("a", "b", "c"):
        bench.free(name)
    look = await started(bench.requeue.look())
    if end == "being bound":
        bench.state.assume(a_pod(first), Placement(NodeName("a"), mem={GPU: 6}), now_ns=1)
    elif end == "bound":
        bench.state.pod_changed(a_pod(placed(first, "a", 0)))
    else:
        bench.state.pod_gone(a_pod(first))
    bench.reply(b"{}", b"{}")
    await look
    left = [item["metadata"]["name"] for item in others]
    assert sorted(bench.sent()) == (left if gang is member else left[:1])


def refused_group(clock: FakeClock) -> Bench:
    """A PodGroup of three pods was refused, and fits now."""
    bench = Bench(clock, "a", "b", "c")
    bench.state.gangs.groups.on_update(PodGroup("default", "g", 3))
    items = [grouped(name) for name in ("g0", "g1", "g2")]
    bench.create(*items)
    for item in items:
        bench.refuse(item, "a", "b", "c")
    for name in ("a", "b", "c"):
        bench.free(name)
    return bench


async def test_one_patch_sends_a_pod_group_back(clock: FakeClock) -> None:
    """kube-scheduler tries all its pods again: thousands of patches would delay other pods."""
    bench = refused_group(clock)
    bench.reply(b"{}")
    assert await bench.requeue.look()
    clock.seconds += requeue.LONGEST_SECONDS
    assert not await bench.requeue.look()
    assert bench.sent() == ["g0"]


async def test_a_pod_group_whose_patch_fails_is_sent_back_again(clock: FakeClock) -> None:
    """All its pods keep their turn."""
    bench = refused_group(clock)
    bench.reply(failure(503, "busy"), b"{}")
    await bench.requeue.look()
    clock.seconds += 1
    await bench.requeue.look()
    assert bench.sent() == ["g0", "g0"]


async def test_a_pod_group_is_sent_back_although_its_first_pod_was_deleted(
    clock: FakeClock,
) -> None:
    """The deletion event comes later: another pod is patched."""
    bench = refused_group(clock)
    bench.reply(failure(404), b"{}")
    await bench.requeue.look()
    clock.seconds += 1
    await bench.requeue.look()
    assert bench.sent() == ["g0", "g1"]


@pytest.mark.parametrize("gang", [member, grouped])
async def test_nodes_that_come_one_after_the_other_count_together(
    clock: FakeClock, gang: Callable[[str], Object]
) -> None:
    """kube-scheduler offered them before this process knew them; the gang needs both."""
    bench = Bench(clock, "a")
    bench.state.gangs.groups.on_update(PodGroup("default", "g", 2))
    items = [gang("g0"), gang("g1")]
    bench.create(*items)
    for item in items:
        bench.refuse(item, "a", "c", "d")
    bench.state.node_changed(a_node("c", 8))
    await bench.requeue.look()
    assert bench.sent() == []
    bench.state.node_changed(a_node("d", 8))
    bench.reply(b"{}", b"{}")
    await bench.requeue.look()
    assert bench.sent()


async def test_a_gang_whose_pods_are_all_placed_during_a_look_is_left_out(
    clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There is nothing to plan, and the next look forgets the pods."""
    monkeypatch.setattr("gpukube.server.time_slices.SECONDS", 0)
    bench = Bench(clock, "a", "b")
    bench.state.gangs.groups.on_update(PodGroup("default", "g", 2))
    items = [grouped("g0"), grouped("g1")]
    bench.create(*items)
    for item in items:
        bench.refuse(item, "a", "b")
    for name in ("a", "b"):
        bench.free(name)
    look = await started(bench.requeue.look())
    for item, node in zip(items, "ab", strict=True):
        bench.state.assume(a_pod(item), Placement(NodeName(node), mem={GPU: 6}), now_ns=1)
    assert not await look
    assert bench.sent() == []


@pytest.mark.parametrize("gang", [member, grouped])
@pytest.mark.parametrize(("owed", "seconds"), [("planning_time", 5), ("reservation_time", 120)])
async def test_a_gang_that_got_no_plan_goes_back_after_the_pause(
    clock: FakeClock, gang: Callable[[str], Object], owed: str, seconds: int
) -> None:
    """No event comes meanwhile; the look goes on, and sends it back once."""
    bench = Bench(clock, "a", "b")
    bench.create(gang("g0"), gang("g1"))
    now, time = clock.now_ns(), getattr(bench.state, owed)
    time.charge("default", now - seconds * 1_000_000_000, now)
    for name in ("g0", "g1"):
        bench.refuse(gang(name), "a", "b", paused=True)
    while time.pause("default", clock.now_ns()):
        assert await bench.requeue.look()
        assert bench.sent() == []
        clock.seconds += 1
    bench.reply(b"{}", b"{}")
    await bench.requeue.look()
    assert bench.sent()[0] == "g0"
    sent = bench.sent()
    clock.seconds += requeue.LONGEST_SECONDS
    assert not await bench.requeue.look()
    assert bench.sent() == sent


async def test_a_gang_that_got_no_plan_is_looked_at_without_an_event(clock: FakeClock) -> None:
    """The refusal itself starts the looks that end with the pause."""
    bench = Bench(clock, "a", "b")
    bench.create(member("g0"), member("g1"))
    bench.free("a")
    bench.free("b")
    now = clock.now_ns()
    bench.state.planning_time.charge("default", now - 5_000_000_000, now)
    task = asyncio.create_task(bench.requeue.run())
    for name in ("g0", "g1"):
        bench.refuse(member(name), "a", "b", paused=True)
    bench.reply(b"{}", b"{}")
    await asyncio.sleep(bench.state.planning_time.pause("default", now) + 2)
    assert sorted(bench.sent()) == ["g0", "g1"]
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_gangs_of_others_go_back_while_a_namespace_gets_no_new_plan(
    clock: FakeClock,
) -> None:
    """Its own gang, of the highest priority, waits without a plan."""
    bench = Bench(clock, "a")
    labels = {"gpu-topology": "other", "gpu-topology-replica": "2"}
    others = [waits(name, 2, labels=labels, namespace="other") for name in ("h0", "h1")]
    mine = [waits(name, 2, labels=labels, priority=9) for name in ("g0", "g1")]
    bench.create(*mine, *others)
    for item in (*mine, *others):
        bench.refuse(item, "a")
    now = clock.now_ns()
    bench.state.planning_time.charge("default", now - 5_000_000_000, now)
    bench.free("a")
    bench.reply(b"{}", b"{}")
    assert await bench.requeue.look()
    assert sorted(bench.sent()) == ["h0", "h1"]
