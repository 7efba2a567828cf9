"""PodGroups in front of the verbs: each pod has a place of its own, in all calls of a cycle."""

import asyncio
import json
from itertools import permutations
from typing import Any

import pytest
from decoded import a_node, a_pod, evicting, state_of
from objects import Object, placed, pod

from gpucore.gang.group_cycles import RELEASE_SECONDS
from gpucore.gang.group_offers import MOST_KINDS
from gpucore.model import Allocation, AllocationState, Placement
from gpucore.scheduling.fit import fit
from gpucore.scheduling.grouping import Rules
from gpucore.scheduling.nominated import reserved_for_nominated
from gpucore.scheduling.pending_pods import UnscheduledPod
from gpucore.scheduling.policy import MAX_SCORE
from gpucore.units import GpuIndex, NodeName, PodUid
from gpucore.wire.constraints import decode_pod
from gpucore.wire.pod_groups import PodGroup
from gpuextender.scheduling.gangs import BIND_SECONDS, RELEASE_LOOK_SECONDS, Gangs
from gpuextender.scheduling.requeue import GRACE_SECONDS
from gpuextender.state import State
from gpukube.testing.clock import FakeClock

NOW = 500_000_000_000
SECOND = 1_000_000_000
A, B, C = (NodeName(name) for name in "abc")
NODES = (A, B, C)
GROUP = ("default", "podgroup/g")


def member(number: int, mem: int = 6, group: str = "g", **more: Any) -> Object:
    """A pod of a PodGroup; a GPU of 8 units fits one."""
    item = pod(f"{group}{number}", mem, uid=f"{group}{number}", **more)
    item["spec"]["schedulingGroup"] = {"podGroupName": group}
    return item


class Bench:
    """Gangs over nodes ``a``, ``b`` and ``c`` of one GPU of 8 units each."""

    def __init__(self, minimum: int = 2, **options: Any) -> None:
        self.now = NOW
        nodes = [a_node(name, 8) for name in NODES]
        self.state: State = state_of(*nodes, clock=lambda: self.now, **options)
        self.gangs = Gangs(self.state, Rules(), clock=lambda: self.now)
        self.state.add_event_handler(
            lambda _: self.gangs.groups.changed(), self.gangs.groups.changed
        )
        self.state.gangs.groups.on_update(PodGroup("default", "g", minimum))

    def come(self, *items: Object) -> list[UnscheduledPod]:
        """The watch brings pods."""
        for item in items:
            self.state.pod_changed(a_pod(item))
        return [self.state.saw(a_pod(item)) for item in items]

    def node_of(self, pending: UnscheduledPod, names: tuple[NodeName, ...] = NODES) -> str:
        """The only node that filter answers, or empty."""
        found = self.gangs.admit(pending, names)
        return "" if isinstance(found, str) or found is None else next(iter(found))

    def why(self, pending: UnscheduledPod) -> str:
        """The refusal."""
        found = self.gangs.admit(pending, NODES)
        assert isinstance(found, str), found
        return found

    def bind(self, pending: UnscheduledPod, node: str) -> Placement | str | None:
        """Take a place and assume it, as a bind does."""
        assert pending.pod_request is not None
        found = self.gangs.take(pending, pending.pod_request, NodeName(node))
        if isinstance(found, Placement):
            self.state.assume(pending.pod, found, now_ns=self.now)
        return found

    def held(self) -> list[Allocation]:
        """What the group holds."""
        return self.state.ledger.gang(*GROUP)

    def reserved(self) -> list[str]:
        """Nodes of the reserved places."""
        return sorted(
            one.placement.node for one in self.held() if one.state is AllocationState.RESERVED
        )

    def place_of(self, pending: UnscheduledPod) -> NodeName:
        """The node of the place that is reserved for a pod."""
        uid = PodUid(f"gang/default/podgroup/g/{pending.pod.uid}")
        found = self.state.ledger.allocation(uid)
        assert found is not None
        return found.placement.node

    async def settled(self, pending: UnscheduledPod) -> None:
        """What filter awaits before a group is judged."""
        await self.gangs.settled(pending.pod)

    def wait(self, seconds: float) -> None:
        """Time passes, and the job that releases plans looks."""
        self.now += int(seconds * SECOND)
        self.gangs.groups.release_ended()


def test_a_refused_group_is_planned_again_when_the_cluster_changes() -> None:
    """A node comes: the pod that is called next, whichever it is, gets a place."""
    bench = Bench(4)
    first, second, *_ = bench.come(*map(member, range(4)))
    bench.why(first)
    bench.state.node_changed(a_node("d", 8))
    assert bench.node_of(second, (*NODES, NodeName("d")))


def test_a_bind_takes_the_place_of_its_pod() -> None:
    """All pods are bound where filter sent them."""
    bench = Bench(3)
    pods = bench.come(*map(member, range(3)))
    nodes = [bench.node_of(one) for one in pods]
    for one, node in zip(pods, nodes, strict=True):
        assert isinstance(bench.bind(one, node), Placement)
    assert {one.state for one in bench.held()} == {AllocationState.ASSUMED}


def test_a_cycle_without_binds_gives_its_places_back() -> None:
    """The time counts for the namespace, as that of every reservation without its pod."""
    bench = Bench(3, reservation_limit=RELEASE_SECONDS)
    pods = bench.come(*map(member, range(3)))
    bench.node_of(pods[0])
    bench.wait(RELEASE_SECONDS / 2)
    assert bench.reserved() == ["a", "b", "c"]
    bench.wait(RELEASE_SECONDS / 2)
    assert bench.reserved() == []
    assert "earlier reservations expired unused" in bench.why(pods[0])


def test_the_places_of_a_deleted_pod_are_given_back() -> None:
    """Those of the others stay."""
    bench = Bench(2)
    pods = bench.come(*map(member, range(3)))
    nodes = [bench.node_of(one) for one in pods]
    bench.state.pod_gone(pods[1].pod)
    assert bench.reserved() == sorted({nodes[0], nodes[2]})


def test_a_group_with_missing_pods_reserves_nothing() -> None:
    """A tenant may write any minimum: only pods that exist count."""
    bench = Bench(1000)
    (one,) = bench.come(member(0))
    words = "gang podgroup/g waits for 999 of its 1000 pods: 1 exists in namespace default"
    assert bench.why(one) == words
    assert not bench.gangs.complete(one)
    assert bench.held() == []


def test_a_changed_minimum_holds_at_once() -> None:
    """A group that was refused fits with a smaller one."""
    bench = Bench(4)
    pods = bench.come(*map(member, range(4)))
    bench.why(pods[0])
    bench.state.gangs.groups.on_update(PodGroup("default", "g", 3))
    assert bench.node_of(pods[0])


def test_could_go_reserves_nothing() -> None:
    """It states whether the group would be placed, for those who send refused pods back."""
    bench = Bench(3)
    pods = bench.come(*map(member, range(3)))
    assert bench.gangs.could_go(pods[0], NODES)
    assert not bench.gangs.could_go(pods[0], (A, B))
    assert bench.held() == []


def test_a_pod_that_holds_a_place_could_go_to_its_node_alone() -> None:
    """It is being bound or is nominated: the group is not planned for it, also as its last pod."""
    bench = Bench(1)
    [pending] = bench.come(member(0))
    bench.state.nominate(pending.pod, Placement(A, mem={GpuIndex(0): 6}), now_ns=NOW)
    assert bench.gangs.could_go(pending, NODES)
    assert not bench.gangs.could_go(pending, (B, C))


def test_prioritize_begins_no_cycle() -> None:
    """The pod's node has the best mark, and the answers stay as they were."""
    bench = Bench(2)
    first, second = bench.come(member(0), member(1))
    node = bench.node_of(first)
    assert bench.gangs.scores(first, NODES) == dict.fromkeys(NODES, 0) | {node: MAX_SCORE}
    assert bench.node_of(second) != node


def test_labels_and_groups_of_one_name_are_two_gangs() -> None:
    """A PodGroup goes before the labels of the same pod."""
    bench = Bench(2)
    labels = {"gpu-topology": "g", "gpu-topology-replica": "3"}
    pods = bench.come(member(0, labels=labels), member(1, labels=labels))
    assert all(map(bench.node_of, pods))
    assert bench.state.ledger.gang("default", "g") == []
    assert len(bench.held()) == 2


async def test_the_next_group_gets_the_gpus_of_a_cycle_without_binds() -> None:
    """kube-scheduler calls for another group, so the cycle before has ended in vain."""
    bench = Bench(2)
    bench.state.gangs.groups.on_update(PodGroup("default", "h", 3))
    pods = bench.come(member(0), member(1))
    others = bench.come(*(member(number, group="h") for number in range(3)))
    for one in pods:
        bench.node_of(one)
    await bench.settled(others[0])
    assert bench.reserved() == []
    assert all(map(bench.node_of, others))


async def test_the_next_group_waits_for_the_binds_of_the_cycle_before() -> None:
    """A bind has come: the places of its group stay."""
    bench = Bench(2)
    pods = bench.come(member(0), member(1))
    others = bench.come(member(0, group="h"))
    nodes = [bench.node_of(one) for one in pods]
    bench.bind(pods[0], nodes[0])
    await bench.settled(others[0])
    assert bench.reserved() == [nodes[1]]


async def test_a_bind_that_comes_while_the_next_group_waits_keeps_the_places(
    clock: FakeClock,
) -> None:
    """Filter looks again until the bind has come, and then waits no longer."""
    bench = Bench(2)
    pods = bench.come(member(0), member(1))
    others = bench.come(member(0, group="h"))
    nodes = [bench.node_of(one) for one in pods]
    before = clock.seconds
    waiting = asyncio.create_task(bench.settled(others[0]))
    await asyncio.sleep(BIND_SECONDS / 2)
    assert not waiting.done()
    bench.bind(pods[0], nodes[0])
    await waiting
    assert clock.seconds < before + BIND_SECONDS
    assert bench.reserved() == [nodes[1]]


async def test_the_plan_of_a_cycle_that_ended_is_released_in_the_background(
    clock: FakeClock,
) -> None:
    """kube-scheduler need not call again: the job looks twice in the time that plans are kept."""
    bench = Bench(2)
    pods = bench.come(member(0), member(1))
    bench.node_of(pods[0])
    job = asyncio.create_task(bench.gangs.release_ended())
    await asyncio.sleep(RELEASE_SECONDS)
    assert len(bench.reserved()) == 2
    bench.now += int(RELEASE_SECONDS * SECOND)
    await asyncio.sleep(RELEASE_SECONDS / 2)
    assert bench.reserved() == []
    job.cancel()


async def test_a_pod_of_no_group_waits_for_no_cycle() -> None:
    """Labels make a gang whose pods are bound one by one."""
    bench = Bench(2)
    pods = bench.come(member(0), member(1))
    bench.node_of(pods[0])
    labels = {"gpu-topology": "l", "gpu-topology-replica": "2"}
    for item in (pod("alone", 1), pod("labelled", 1, labels=labels)):
        await bench.settled(bench.come(item)[0])
    assert len(bench.reserved()) == 2


async def test_a_cycle_that_kube_scheduler_accepted_keeps_its_places() -> None:
    """Its binds wait for a volume, and the status of the PodGroup says that they will come."""
    bench = Bench(2)
    pods = bench.come(member(0), member(1))
    others = bench.come(member(0, group="h"))
    for one in pods:
        bench.node_of(one)
    bench.state.gangs.groups.on_update(PodGroup("default", "g", 2, scheduled=True))
    await bench.settled(others[0])
    bench.wait(10 * RELEASE_SECONDS)
    assert len(bench.reserved()) == 2


async def test_groups_of_one_composite_share_a_cycle() -> None:
    """The second group of a CompositePodGroup is called while the first is not bound yet."""
    bench = Bench(2)
    for name in "gh":
        bench.state.gangs.groups.on_update(PodGroup("default", name, 1, parent="all"))
    pods = bench.come(member(0), member(0, group="h"))
    node = bench.node_of(pods[0])
    await bench.settled(pods[1])
    assert bench.reserved() == [node]
    assert bench.node_of(pods[1]) not in {"", node}


def test_a_pod_that_fits_nowhere_keeps_no_other_pod_from_its_place() -> None:
    """Whichever pod is called first: the group starts where its minimum fits."""
    for first, *others in ((2, 0, 1), (0, 2, 1), (0, 1, 2)):
        bench = Bench(2)
        pods = bench.come(member(0), member(1), member(2, mem=20))
        found = {number: bench.node_of(pods[number]) for number in (first, *others)}
        assert found == {0: found[0], 1: found[1], 2: ""}
        assert {found[0], found[1]} < {*NODES}
        assert found[0] != found[1]


def constrained(item: Object, **spec: Any) -> Object:
    """The pod with more in its specification, as its informer reads it."""
    return {**item, "spec": {**item["spec"], **spec}}


def test_pods_that_choose_different_nodes_are_planned_apart() -> None:
    """kube-scheduler ends the cycle with the first pod that has no place, and calls no other."""
    bench = Bench(2)
    items = [constrained(member(n), nodeSelector={"name": name}) for n, name in enumerate("ab")]
    for item in items:
        bench.state.pod_changed(decode_pod(json.dumps(item).encode()))
    first, second = (bench.state.saw(a_pod(item)) for item in items)
    assert (bench.node_of(first, (A,)), bench.node_of(second, (B,))) == ("a", "b")
    bench.wait(RELEASE_SECONDS)
    assert bench.gangs.could_go(first, (A,))


def test_pods_with_volumes_are_planned_apart() -> None:
    """Pods of one template whose volumes are in different zones."""
    bench = Bench(2)
    volumes = [{"name": "data", "persistentVolumeClaim": {"claimName": "any"}}]
    for number in range(2):
        item = constrained(member(number), volumes=volumes)
        bench.state.pod_changed(decode_pod(json.dumps(item).encode()))
    first, second = (bench.state.saw(a_pod(member(number))) for number in range(2))
    assert (bench.node_of(first, (A,)), bench.node_of(second, (B,))) == ("a", "b")


def test_an_offer_of_an_earlier_cycle_does_not_hide_a_new_node() -> None:
    """A pod of another owner was offered one node then; now there is a free one more."""
    bench = Bench(2)
    for number, node in enumerate("abc"):
        bench.state.pod_changed(a_pod(placed(pod(f"x{number}", 8, uid=f"x{number}"), node, 0)))
    items = [member(0), member(1)]
    for item, owner in zip(items, "jk", strict=True):
        item["metadata"]["ownerReferences"] = [{"uid": owner, "controller": True}]
    first, second = bench.come(*items)
    bench.node_of(first, (A,))
    bench.state.node_changed(a_node("e", 1))
    bench.node_of(second, (C,))
    bench.state.pod_gone(a_pod(placed(pod("x0", 8, uid="x0"), "a", 0)))
    d = NodeName("d")
    bench.state.node_changed(a_node(d, 8))
    assert (bench.node_of(first, (A,)), bench.node_of(second, (C, d))) == ("a", "d")


def test_a_nominated_pod_with_a_place_counts_once() -> None:
    """kube-scheduler nominates the pods of a group while it waits for their volumes."""
    bench = Bench(1)
    bench.state.node_changed(a_node("d", 8, 8))
    d = NodeName("d")
    (member_0,) = bench.come(member(0))
    assert bench.node_of(member_0, (d,)) == "d"
    nominated = member(0)
    nominated["status"]["nominatedNodeName"] = "d"
    bench.state.pod_changed(a_pod(nominated))
    (plain,) = bench.come(pod("plain", 6))
    assert plain.pod_request is not None
    kept = reserved_for_nominated(
        bench.state.nominations, bench.state.ledger.node(d), plain.pod, plain.pod_request
    )
    assert kept is None
    bench.state.pod_gone(a_pod(nominated))
    bench.state.pod_changed(a_pod(nominated))
    bench.wait(RELEASE_SECONDS)
    assert len(bench.state.nominations.before(d, plain.pod)) == 1


def test_an_accepted_plan_is_kept_while_its_pods_may_wait_for_volumes() -> None:
    """As long as kube-scheduler waits; then its places expire like any other."""
    for seconds, kept in ((580, ["a", "b"]), (800, [])):
        bench = Bench(2)
        pods = bench.come(member(0), member(1))
        nodes = [bench.node_of(one) for one in pods]
        bench.state.gangs.groups.on_update(PodGroup("default", "g", 2, scheduled=True))
        for _ in range(seconds // 10):
            bench.wait(10)
            bench.state.expire(now_ns=bench.now, ttl_ns=120 * SECOND)
        assert bench.reserved() == kept
        if kept:
            found = [bench.bind(one, node) for one, node in zip(pods, nodes, strict=True)]
            assert all(isinstance(one, Placement) for one in found)


def accepted(bench: Bench) -> None:
    """Two pods of the group have places, and kube-scheduler has accepted these."""
    for one in bench.come(member(0), member(1)):
        bench.node_of(one)
    bench.state.gangs.groups.on_update(PodGroup("default", "g", 2, scheduled=True))
    bench.wait(1)


def bind_another(bench: Bench, number: int) -> None:
    """A pod of the group comes late, is bound and deleted."""
    (late,) = bench.come(member(number))
    assert isinstance(bench.bind(late, bench.node_of(late)), Placement)
    bench.state.pod_gone(late.pod)


@pytest.mark.parametrize("calls", ["of its pods", "of a late pod", "binds of late pods"])
def test_calls_for_the_pods_of_an_accepted_plan_do_not_prolong_it(calls: str) -> None:
    """Its 600 s count from the acceptance; then its places expire, and the namespace pauses."""
    bench = Bench(2)
    accepted(bench)
    held = set[str]()
    for number in range(73):
        bench.wait(10)
        bench.state.expire(now_ns=bench.now, ttl_ns=120 * SECOND)
        held = {one.uid for one in bench.held()}
        if len(held) < 2:
            break
        if calls == "of its pods":
            bench.node_of(bench.come(member(number % 2))[0])
        elif calls == "of a late pod":
            bench.node_of(bench.come(member(2))[0])
        else:
            bind_another(bench, 2 + number)
    assert not held
    assert number >= 59
    assert "earlier reservations expired unused" in bench.why(bench.come(member(0))[0])


def test_places_of_pods_that_a_list_lacks_are_given_back() -> None:
    """They were deleted while the watch was away; a pod that only a request brought may come."""
    bench = Bench(2)
    bench.state.saw(a_pod(member(0)))  # before the watch brings it
    first, second = bench.come(member(0), member(1))
    late = bench.state.saw(a_pod(member(2)))
    for one in (first, second, late):
        bench.node_of(one)
    assert len(bench.reserved()) == 3
    bench.state.relist_pods([a_pod(member(1))])
    assert bench.reserved() == sorted([bench.place_of(second), bench.place_of(late)])


def test_a_lost_bind_keeps_a_place_only_for_a_pod_that_waits() -> None:
    """One that was deleted meanwhile, or is being deleted, needs none."""
    for change, kept in (("none", 1), ("deleted", 0), ("terminating", 0)):
        bench = Bench(1)
        (pending,) = bench.come(member(0))
        assert isinstance(bench.bind(pending, bench.node_of(pending)), Placement)
        item = member(0)
        if change == "terminating":
            item["metadata"]["deletionTimestamp"] = "2026-11-28T00:00:00Z"
        bench.state.relist_pods([] if change == "deleted" else [a_pod(item)])
        bench.state.forget(pending.pod.uid)
        assert len(bench.reserved()) == kept


def low(bench: Bench) -> str:
    """The node that a pod of lower priority gets beside the nominated pods, or empty."""
    (pending,) = bench.come(pod("low", 6, priority=-5))
    assert pending.pod_request is not None
    for name in NODES:
        node_info = bench.state.ledger.node(name)
        assert node_info is not None
        kept = reserved_for_nominated(
            bench.state.nominations, node_info, pending.pod, pending.pod_request
        )
        if kept is None and fit(node_info, pending.pod_request) is None:
            return name
    return ""


@pytest.mark.parametrize("first", ["nominated", "placed", "listed"])
def test_a_nomination_counts_again_when_the_plan_of_its_group_is_released(first: str) -> None:
    """Pods of lower priority leave the GPUs to it, whether or not it had a place meanwhile."""
    bench = Bench(3)
    items = [member(number) for number in range(3)]
    pods = bench.come(*items)
    nodes = [bench.node_of(one) for one in pods] if first != "nominated" else list(NODES)
    for item, node in zip(items, nodes, strict=True):
        item["status"]["nominatedNodeName"] = node
    if first == "nominated":
        pods = bench.come(*items)
        assert [bench.node_of(one) for one in pods] == nodes
    if first == "placed":
        bench.come(*items)
    if first == "listed":
        bench.state.relist_pods(map(a_pod, items))
    assert low(bench) == ""
    bench.wait(RELEASE_SECONDS)
    assert bench.reserved() == []
    assert low(bench) == ""


def test_a_group_leaves_the_gpus_that_are_kept_for_a_nominated_pod() -> None:
    """Of the same priority at least; one of its own pods goes where it is nominated."""
    d = NodeName("d")
    for priority, mem, node in ((1000, 5, ""), (1000, 4, "d"), (-1, 5, "d")):
        bench = Bench(1)
        evicting(bench.state, priority)
        (pending,) = bench.come(member(0, mem=mem))
        assert bench.node_of(pending, (d,)) == node
    bench = Bench(2)
    bench.state.node_changed(a_node("d", 8))
    items = [member(0), member(1)]
    items[1]["status"]["nominatedNodeName"] = "d"
    first, _ = bench.come(*items)
    assert bench.node_of(first, (A, d))
    assert bench.reserved() == ["a", "d"]


@pytest.mark.parametrize("nodes", list(permutations(NODES)), ids="".join)
def test_a_new_process_binds_a_group_wherever_the_earlier_one_sent_it(
    nodes: tuple[NodeName, ...],
) -> None:
    """Each bind says where one pod goes; where the others go is a guess until theirs."""
    bench = Bench(3)
    pods = bench.come(*map(member, range(3)))
    found = [bench.bind(one, node) for one, node in zip(pods, nodes, strict=True)]
    assert all(isinstance(one, Placement) for one in found)


def test_nodes_are_remembered_for_few_kinds_of_pods() -> None:
    """Each pod of a large group may be of its own, on thousands of nodes; all get their places."""
    bench = Bench(MOST_KINDS + 2)
    for number in range(MOST_KINDS + 2):
        bench.state.node_changed(a_node(f"n{number}", 8))
    items = [member(number) for number in range(MOST_KINDS + 2)]
    for number, item in enumerate(items):
        item["metadata"]["ownerReferences"] = [{"uid": str(number), "controller": True}]
    pods = bench.come(*items)
    nodes = [NodeName(f"n{number}") for number in range(len(pods))]
    for one, node in zip(pods, nodes, strict=True):
        assert bench.node_of(one, (node, A)) in {node, A}
    (cycle,) = bench.gangs.groups._cycles.values()
    assert len(cycle.offers) == MOST_KINDS


def test_released_gpus_reach_other_pods_before_kube_scheduler_tries_the_group_again() -> None:
    """It does so every three seconds, and would get them each time if the looks were in step."""
    assert RELEASE_SECONDS + RELEASE_LOOK_SECONDS + GRACE_SECONDS < 3.0
