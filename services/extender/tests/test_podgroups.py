"""PodGroups in front of the verbs: each pod has a place of its own, in all calls of a cycle."""

from typing import Any

import pytest
from decoded import a_node, a_pod, state_of
from objects import Object, placed, pod

from gpucore.gang.group_cycles import RELEASE_SECONDS, REMEMBER_SECONDS
from gpucore.gang.members import MOST_RESERVED
from gpucore.gang.rules import Rules
from gpucore.model import Allocation, AllocationState, Placement
from gpucore.scheduling.pending_pods import UnscheduledPod
from gpucore.scheduling.policy import MAX_SCORE
from gpucore.units import NodeName, PodUid
from gpucore.wire.pod_groups import PodGroup
from gpuextender.scheduling.gangs import Gangs
from gpuextender.state import State

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


def test_each_pod_of_a_cycle_gets_a_place_of_its_own() -> None:
    """No bind comes between the calls, and yet no GPU is answered twice."""
    bench = Bench(3)
    pods = bench.come(*map(member, range(3)))
    assert {bench.node_of(one) for one in pods} == {"a", "b", "c"}
    assert bench.reserved() == ["a", "b", "c"]


def test_a_group_with_too_little_room_is_refused_at_its_first_pod() -> None:
    """Four pods and three GPUs: nothing is reserved, whichever pod is called."""
    bench = Bench(4)
    pods = bench.come(*map(member, range(4)))
    words = "podgroup/g needs GPUs for 4 of its pending pods at once (4 x 6 GiB of GPU memory)"
    assert {bench.why(one) for one in pods} == {f"{words}: capacity for 3"}
    assert bench.held() == []


def test_a_refused_group_is_planned_again_when_the_cluster_changes() -> None:
    """A node comes: the pod that is called next, whichever it is, gets a place."""
    bench = Bench(4)
    first, second, *_ = bench.come(*map(member, range(4)))
    bench.why(first)
    bench.state.node_changed(a_node("d", 8))
    assert bench.node_of(second, (*NODES, NodeName("d")))


def test_a_repeated_cycle_gets_the_same_places() -> None:
    """kube-scheduler simulates a group several times; no place is taken for each."""
    bench = Bench(3)
    pods = bench.come(*map(member, range(3)))
    first = [bench.node_of(one) for one in pods]
    assert [bench.node_of(one) for one in pods] == first
    assert bench.reserved() == ["a", "b", "c"]


def test_more_pods_than_the_minimum_get_what_fits() -> None:
    """Of five pods that need two, three get places and the others are refused alone."""
    bench = Bench(2)
    pods = bench.come(*map(member, range(5)))
    nodes = [bench.node_of(one) for one in pods]
    assert sorted(filter(None, nodes)) == ["a", "b", "c"]
    assert nodes[:3] == list(filter(None, nodes))


def test_the_pods_that_are_called_first_get_the_places() -> None:
    """The plan was made for others of the group; those give their places up."""
    bench = Bench(2)
    pods = bench.come(*map(member, range(5)))
    bench.node_of(pods[0])
    assert bench.node_of(pods[4])
    assert bench.node_of(pods[3])
    assert not bench.node_of(pods[2])


def test_a_pod_that_may_not_go_to_its_place_exchanges_it() -> None:
    """The second pod is offered the node of the third alone; the third gets that of the second."""
    bench = Bench(3)
    pods = bench.come(*map(member, range(3)))
    bench.node_of(pods[0])
    second, third = (bench.place_of(one) for one in pods[1:])
    assert bench.node_of(pods[1], (third,)) == third
    assert bench.node_of(pods[2]) == second


def test_a_pod_that_may_go_to_no_place_of_the_plan_is_planned_anew() -> None:
    """The plan has two pods on one node, which kube-scheduler offers to the first one only."""
    bench = Bench(2)
    first, second = bench.come(member(0, 4), member(1, 4))
    node = bench.node_of(first)
    assert bench.place_of(second) == node
    rest = tuple(name for name in NODES if name != node)
    assert bench.node_of(second, rest) in rest
    assert len(bench.reserved()) == 2


def test_a_place_that_was_answered_is_not_exchanged() -> None:
    """The first pod keeps its node, though the second is offered that one alone."""
    bench = Bench(2)
    first, second = bench.come(member(0), member(1))
    node = NodeName(bench.node_of(first))
    assert not bench.node_of(second, (node,))
    assert node in bench.reserved()


def test_pods_of_different_requests_are_planned_together() -> None:
    """A pod of a whole GPU and four of half a GPU fill three GPUs; one more is too many."""
    bench = Bench(5)
    pods = bench.come(member(0, 4), member(1, 8), *(member(n, 4) for n in (2, 3, 4)))
    assert all(map(bench.node_of, pods))
    bench = Bench(6)
    pods = bench.come(member(0, 4), member(1, 8), *(member(n, 4) for n in (2, 3, 4, 5)))
    assert "(5 x 4 GiB of GPU memory, 1 x 8 GiB of GPU memory)" in bench.why(pods[0])


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


def test_a_group_that_is_being_bound_keeps_its_places() -> None:
    """Slow binds do not lose them to other pods; the places of pods without an answer go."""
    bench = Bench(2)
    pods = bench.come(*map(member, range(3)))
    node = bench.node_of(pods[0])
    bench.node_of(pods[1])
    bench.bind(pods[0], node)
    bench.wait(10 * RELEASE_SECONDS)
    assert len(bench.reserved()) == 1


def test_a_bind_after_the_release_reserves_the_whole_group_again() -> None:
    """All pods of the cycle have their places back, the one being bound at once."""
    bench = Bench(3)
    pods = bench.come(*map(member, range(3)))
    nodes = [bench.node_of(one) for one in pods]
    bench.wait(RELEASE_SECONDS)
    assert isinstance(bench.bind(pods[1], nodes[1]), Placement)
    assert len(bench.held()) == 3


def test_a_bind_after_the_release_is_refused_when_another_pod_took_a_gpu() -> None:
    """One place is gone, so no pod of the group is bound."""
    bench = Bench(3)
    pods = bench.come(*map(member, range(3)))
    nodes = [bench.node_of(one) for one in pods]
    bench.wait(RELEASE_SECONDS)
    bench.state.pod_changed(a_pod(placed(pod("other", 6), nodes[2], 0)))
    for one, node in zip(pods[:2], nodes, strict=False):
        assert "has lost its GPUs" in str(bench.bind(one, node))
    assert bench.held() == []


def test_a_bind_finds_the_places_of_an_earlier_set_of_nodes() -> None:
    """kube-scheduler tried two sets of nodes, and chose the first one."""
    bench = Bench(1)
    (one,) = bench.come(member(0))
    assert bench.node_of(one, (A,)) == "a"
    assert bench.node_of(one, (B,)) == "b"
    assert isinstance(bench.bind(one, "a"), Placement)
    assert [allocation.placement.node for allocation in bench.held()] == ["a"]


def test_a_bind_without_a_known_cycle_reserves_for_the_others_first() -> None:
    """After a restart of the extender a bind may come that nobody remembers."""
    bench = Bench(3)
    pods = bench.come(*map(member, range(3)))
    assert isinstance(bench.bind(pods[0], "b"), Placement)
    assert bench.reserved() == ["a", "c"]
    short = Bench(4)
    pods = short.come(*map(member, range(4)))
    assert "has no place for the pod on b" in str(short.bind(pods[0], "b"))
    assert short.held() == []


def test_the_places_of_a_deleted_pod_are_given_back() -> None:
    """Those of the others stay."""
    bench = Bench(2)
    pods = bench.come(*map(member, range(3)))
    nodes = [bench.node_of(one) for one in pods]
    bench.state.pod_gone(pods[1].pod)
    assert bench.reserved() == sorted({nodes[0], nodes[2]})


def test_pods_that_request_no_gpu_count_for_the_minimum() -> None:
    """A launcher without GPUs is placed by others: two of the group's three pods need places."""
    bench = Bench(3)
    launcher = pod("launcher", uid="launcher")
    launcher["spec"]["schedulingGroup"] = {"podGroupName": "g"}
    bench.come(launcher)
    pods = bench.come(member(0, 8), member(1, 8))
    assert all(map(bench.node_of, pods))


def test_a_group_with_missing_pods_reserves_nothing() -> None:
    """A tenant may write any minimum: only pods that exist count."""
    bench = Bench(1000)
    (one,) = bench.come(member(0))
    words = "gang podgroup/g waits for 999 of its 1000 pods: 1 exists in namespace default"
    assert bench.why(one) == words
    assert not bench.gangs.complete(one)
    assert bench.held() == []


def test_a_namespace_reserves_so_many_places_and_no_more() -> None:
    """The limit is that of all gangs of the namespace."""
    bench = Bench(MOST_RESERVED + 1)
    pods = bench.come(*(member(number, 1) for number in range(MOST_RESERVED + 1)))
    assert bench.why(pods[0]).endswith("1023 places are already reserved in namespace default")


def test_a_group_without_a_known_size_gets_distinct_places() -> None:
    """The PodGroup was not read: kube-scheduler enforces the minimum by itself."""
    bench = Bench()
    pods = bench.come(*(member(number, group="h") for number in range(4)))
    assert sorted(map(bench.node_of, pods)) == ["", "a", "b", "c"]


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


@pytest.mark.parametrize("seconds", [REMEMBER_SECONDS, 2 * REMEMBER_SECONDS])
def test_a_cycle_is_forgotten_in_the_end(seconds: float) -> None:
    """No memory is kept of groups that are gone; a bind of them is one that nobody remembers."""
    bench = Bench(3)
    pods = bench.come(*map(member, range(3)))
    nodes = [bench.node_of(one) for one in pods]
    bench.wait(RELEASE_SECONDS)
    bench.wait(seconds)
    bench.state.pod_changed(a_pod(placed(pod("other", 6), nodes[2], 0)))
    assert "has no place for the pod" in str(bench.bind(pods[0], nodes[0]))


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


async def test_a_later_cycle_of_a_group_that_runs_ends_like_any_other() -> None:
    """The status was true before, so it says nothing about this cycle."""
    bench = Bench(2)
    bench.state.gangs.groups.on_update(PodGroup("default", "g", 2, scheduled=True))
    pods = bench.come(member(0), member(1))
    for one in pods:
        bench.node_of(one)
    bench.wait(RELEASE_SECONDS)
    assert bench.reserved() == []


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
