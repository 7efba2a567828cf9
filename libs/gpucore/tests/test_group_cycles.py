"""The places of a PodGroup in one cycle of kube-scheduler, and what becomes of them after it."""

from typing import Any

import msgspec
import pytest
from corebuilders import NAMES, ledger, make_gpus, pod, pod_request, share_node

from gpucore.accounting.ledger import Ledger
from gpucore.explain.gangs import group_sentence
from gpucore.gang import group_places
from gpucore.gang.gang_pods import GangPods
from gpucore.gang.group_cycle import SIMULATIONS
from gpucore.gang.group_cycles import RELEASE_SECONDS, REMEMBER_SECONDS, PodGroupCycles
from gpucore.gang.group_places import MOST_IN_VAIN
from gpucore.gang.group_plan import plan_group
from gpucore.gang.members import (
    LIMIT_SECONDS,
    MOST_RESERVED,
    PLANNING_SECONDS,
    RECOVERY,
    GroupMember,
    NamespaceTime,
)
from gpucore.gang.placement import taken
from gpucore.model import Allocation, AllocationState, Placement
from gpucore.model.constraints import PodConstraints
from gpucore.scheduling.grouping import Rules
from gpucore.scheduling.pending_pods import Nominations, UnscheduledPod
from gpucore.units import NodeName, PodUid
from gpucore.wire.pod.gangs import Gang
from gpucore.wire.pod.spec import Pod
from gpucore.wire.pod_groups import PodGroup
from gpucore.wire.whole_requests import pod_request_of

SECOND = 1_000_000_000
A, B, C, D = (NodeName(name) for name in "abcd")
NODES = (A, B, C)
GROUP = ("default", "podgroup/g")


def member(number: int, mem: int = 6, group: str = "g") -> Pod:
    """A pod of a PodGroup; a GPU of 8 units fits one."""
    return msgspec.structs.replace(pod(f"{group}{number}", mem), pod_group=group)


class Cluster:
    """Nodes ``a``, ``b`` and ``c`` of one GPU of 8 units each, and the pods of gangs."""

    def __init__(self) -> None:
        self.now = 500 * SECOND
        self.ledger = ledger(*(share_node(name, make_gpus(8)) for name in NODES))
        self.gangs = GangPods(NAMES, lambda uid: self.ledger.allocation(uid) is not None)
        self.reservation_time = NamespaceTime()
        self.planning_time = NamespaceTime(PLANNING_SECONDS)
        self.nominations = Nominations()
        self.in_vain: list[PodUid] = []

    def constraints_of(self, pod: Pod) -> PodConstraints | None:
        """Those of no pod are known."""
        assert pod.constraints is None

    def reserve(self, allocation: Allocation) -> None:
        """Keep a place."""
        self.ledger.reserve(allocation)

    def forget(self, uid: PodUid) -> None:
        """Give a place back."""
        self.ledger.forget(uid)

    def release(self, uid: PodUid) -> None:
        """Give back a place that was kept in vain."""
        self.in_vain.append(uid)
        self.forget(uid)


class Bench:
    """The cycles of the group ``g`` on that cluster."""

    def __init__(self, minimum: int = 2) -> None:
        self.state = Cluster()
        self.cycles = PodGroupCycles(self.state, Rules(), lambda: self.state.now)
        self.groups = self.state.gangs.groups
        self.groups.on_update(PodGroup("default", "g", minimum))

    def come(self, *pods: Pod) -> list[UnscheduledPod]:
        """The watch brings pods."""
        for item in pods:
            self.state.gangs.note(item)
        return [UnscheduledPod(item, pod_request_of(item, NAMES)) for item in pods]

    def gang(self, pending: UnscheduledPod) -> Gang:
        """The gang of a pod."""
        found = self.groups.gang_of(pending.pod)
        assert found is not None
        return found

    def node_of(self, pending: UnscheduledPod, names: tuple[NodeName, ...] = NODES) -> str:
        """The node of the place that filter gets, or empty."""
        found = self.cycles.admit(pending, self.gang(pending), names)
        return found.placement.node if isinstance(found, Allocation) else ""

    def why(self, pending: UnscheduledPod) -> str:
        """The refusal."""
        found = self.cycles.admit(pending, self.gang(pending), NODES)
        assert not isinstance(found, Allocation), found
        return group_sentence(found)

    def bind(self, pending: UnscheduledPod, node: str) -> Placement | str:
        """Take a place and assume it, as a bind does."""
        found = self.cycles.take(pending, self.gang(pending), NodeName(node))
        if not isinstance(found, Allocation):
            return group_sentence(found)
        placement = taken(self.state.ledger, found, pod_request(pending.pod), Rules())
        assert isinstance(placement, Placement)
        self.state.forget(found.uid)
        self.state.ledger.assume(pending.pod, placement, now_ns=self.state.now)
        return placement

    def others_take(self, node: str, mem: int = 6) -> None:
        """A pod of no gang is bound to a node."""
        holder = pod("other", mem, node=node, annotations={NAMES.mem_idx: "0"})
        self.state.ledger.pod_changed(holder)

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

    def beside(self, group: str) -> list[tuple[str, str]]:
        """The groups whose plans another group waits for."""
        return self.cycles.unbound_beside(Gang("default", f"podgroup/{group}", 1))

    def add_node(self, name: str) -> None:
        """A node comes, of which the cycles were not told."""
        self.state.ledger.node_changed(share_node(name, make_gpus(8)))

    def reserve_for_others(self, places: int, namespace: str = "default") -> None:
        """Another gang of a namespace has reserved so many places, on another node."""
        for number in range(places):
            uid, place = PodUid(f"gang/{namespace}/o/{number}"), Placement(NodeName("far"))
            self.state.reserve(
                Allocation(uid, namespace, "", AllocationState.RESERVED, place, gang="o")
            )

    def plans_took(self, seconds: float) -> None:
        """Plans for other gangs of the namespace took so long, until now."""
        began = self.state.now
        self.state.now += int(seconds * SECOND)
        self.state.planning_time.charge("default", began, self.state.now)

    def wait(self, seconds: float) -> None:
        """Time passes, and the job that releases plans looks."""
        self.state.now += int(seconds * SECOND)
        self.cycles.release_ended()


def test_pods_that_no_watch_has_shown_yet_share_no_place() -> None:
    """kube-scheduler may call filter before the watch brings the pods."""
    bench = Bench(1)
    unseen = [UnscheduledPod(one, pod_request_of(one, NAMES)) for one in map(member, range(3))]
    assert {bench.node_of(one) for one in unseen[:2]} == {"a", "b"}
    assert not bench.node_of(unseen[2], (A, B))
    assert bench.reserved() == ["a", "b"]


def test_places_that_no_longer_fit_together_are_planned_anew() -> None:
    """A bind would refuse each pod while the other has its place."""
    bench = Bench(2)
    pods = bench.come(member(0, 4), member(1, 4))
    assert [bench.node_of(one) for one in pods] == ["a", "a"]
    bench.state.ledger.node_changed(share_node("a", make_gpus(4)))
    assert {bench.node_of(one) for one in pods} == {"a", "b"}
    assert all(isinstance(bench.bind(one, bench.place_of(one)), Placement) for one in pods)


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
    assert bench.why(pods[2]) == "podgroup/g has GPUs for 3 of its pending pods"


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
    bench.wait(10 * RELEASE_SECONDS)
    assert len(bench.held()) == 3


def test_a_bind_after_the_release_is_refused_when_another_pod_took_a_gpu() -> None:
    """One place is gone, so no pod of the group is bound."""
    bench = Bench(3)
    pods = bench.come(*map(member, range(3)))
    nodes = [bench.node_of(one) for one in pods]
    bench.wait(RELEASE_SECONDS)
    bench.others_take(nodes[2])
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


def test_a_bind_reserves_the_newest_answers_with_its_node() -> None:
    """The first pod was sent to one node twice, the second pod to another node each time."""
    bench = Bench(1)
    first, second = bench.come(member(0), member(1))
    for node, other in ((A, B), (A, C), (B, C)):
        assert bench.node_of(first, (node,)) == node
        assert bench.node_of(second, (other,)) == other
    assert isinstance(bench.bind(first, "a"), Placement)
    assert sorted(one.placement.node for one in bench.held()) == ["a", "c"]


def test_a_late_bind_of_a_group_that_lost_a_pod_is_refused() -> None:
    """The pods that are left are fewer than are placed together."""
    bench = Bench(2)
    first, second = bench.come(member(0), member(1))
    node = bench.node_of(first)
    assert bench.node_of(second)
    bench.wait(RELEASE_SECONDS)
    bench.state.gangs.drop(second.pod.uid)
    assert "has lost its GPUs" in str(bench.bind(first, node))
    assert bench.held() == []


@pytest.mark.parametrize(
    ("others", "expected"),
    [(SIMULATIONS, "has lost its GPUs"), (SIMULATIONS + 1, "capacity for 0")],
)
def test_so_many_earlier_sets_of_nodes_are_remembered(others: int, expected: str) -> None:
    """A bind of one before those is one that nobody remembers: memory is bounded."""
    bench = Bench(1)
    (one,) = bench.come(member(0))
    assert bench.node_of(one, (A,)) == "a"
    for number in range(others):
        assert bench.node_of(one, ((B, C)[number % 2],))
    bench.others_take("a")
    assert expected in str(bench.bind(one, "a"))


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


def test_pods_that_request_no_gpu_count_for_the_minimum() -> None:
    """A launcher without GPUs is placed by others: two of the group's three pods need places."""
    bench = Bench(3)
    bench.come(msgspec.structs.replace(pod("launcher"), pod_group="g"))
    pods = bench.come(member(0, 8), member(1, 8))
    assert all(map(bench.node_of, pods))


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


@pytest.mark.parametrize("seconds", [REMEMBER_SECONDS, 2 * REMEMBER_SECONDS])
def test_a_cycle_is_forgotten_in_the_end(seconds: float) -> None:
    """No memory is kept of groups that are gone; a bind of them is one that nobody remembers."""
    bench = Bench(3)
    pods = bench.come(*map(member, range(3)))
    nodes = [bench.node_of(one) for one in pods]
    bench.wait(RELEASE_SECONDS)
    bench.wait(seconds)
    bench.others_take(nodes[2])
    assert "has no place for the pod" in str(bench.bind(pods[0], nodes[0]))


def test_a_group_whose_pods_are_bound_is_forgotten() -> None:
    """Its binds have come, so no place has to be found for one any more."""
    bench = Bench(2)
    pods = bench.come(member(0), member(1))
    for one, node in [(one, bench.node_of(one)) for one in pods]:
        bench.bind(one, node)
    bench.groups.on_update(PodGroup("default", "g", 2, scheduled=True))
    bench.wait(REMEMBER_SECONDS - 1)
    assert bench.cycles._cycles
    bench.wait(1)
    assert not bench.cycles._cycles


@pytest.mark.parametrize("seconds", [0, 1])
def test_a_pod_that_comes_after_all_binds_is_accepted_anew(seconds: float) -> None:
    """The status of the PodGroup is that of the cycle before, though it came after the binds.

    So it is where no job has looked at the status since the binds.
    """
    bench = Bench(1)
    [first] = bench.come(member(0))
    bench.bind(first, bench.node_of(first))
    bench.groups.on_update(PodGroup("default", "g", 1, scheduled=True))
    if seconds:
        bench.wait(seconds)
    [second] = bench.come(member(1))
    assert bench.node_of(second)
    bench.wait(RELEASE_SECONDS)
    assert bench.reserved() == []


def test_answers_of_a_cycle_stay_if_its_plan_is_released_before_its_end() -> None:
    """kube-scheduler pauses between two pods, and binds the first where it was sent."""
    bench = Bench(3)
    pods = bench.come(*map(member, range(3)))
    nodes = [bench.node_of(pods[0])]
    bench.wait(RELEASE_SECONDS)
    assert bench.reserved() == []
    nodes += [bench.node_of(one) for one in pods[1:]]
    assert sorted(nodes) == ["a", "b", "c"]
    for one, node in zip(pods, nodes, strict=True):
        assert isinstance(bench.bind(one, node), Placement)


def test_answers_of_a_cycle_that_was_released_give_way_to_a_plan_that_needs_their_nodes() -> None:
    """The second pod may go to the node of the first alone, which is called again."""
    bench = Bench(2)
    first, second = bench.come(member(0), member(1, 7))
    node = NodeName(bench.node_of(first))
    bench.wait(RELEASE_SECONDS)
    assert bench.node_of(second, (node,)) == node
    assert bench.node_of(first) not in {"", node}


def test_a_plan_that_takes_long_is_kept_as_long_as_any_other() -> None:
    """Its time begins when it is made."""
    bench = Bench(2)
    first, _ = bench.come(member(0), member(1))
    reserve = bench.state.reserve

    def late(allocation: Allocation) -> None:
        reserve(allocation)
        bench.state.now += int(RELEASE_SECONDS) * SECOND

    bench.state.reserve = late  # type: ignore[method-assign]
    bench.node_of(first)
    bench.wait(0)
    assert len(bench.reserved()) == 2


@pytest.fixture
def planned(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of pods of each plan."""
    found: list[int] = []

    def counting(
        ledger: Ledger, gang: Gang, members: list[GroupMember], *rest: Any, **more: Any
    ) -> Any:
        found.append(len(members))
        return plan_group(ledger, gang, members, *rest, **more)

    monkeypatch.setattr(group_places, "plan_group", counting)
    return found


def test_pods_beyond_the_capacity_are_refused_without_a_plan_for_all(planned: list[int]) -> None:
    """A group of thousands, of which few fit, is called pod by pod: others wait meanwhile."""
    bench = Bench(1)
    pods = bench.come(*map(member, range(20)))
    assert len(list(filter(None, map(bench.node_of, pods)))) == 3
    assert planned == [20, *[1] * 17]
    bench.add_node("d")
    assert bench.node_of(pods[19], (*NODES, D)) == "d"


def test_pods_that_find_no_place_stop_planning_for_others_after_some_attempts(
    planned: list[int],
) -> None:
    """Larger pods have the places, and are called last; the next cycle plans again."""
    bench = Bench(1)
    sizes = [6, *[3] * (MOST_IN_VAIN + 4), 8, 8]
    pods = bench.come(*(member(number, mem) for number, mem in enumerate(sizes)))
    nodes = [bench.node_of(one) for one in pods[:-5]]
    planned.clear()
    nodes += [bench.node_of(one) for one in pods[-5:]]
    assert planned == [1, 1, 1]
    assert nodes[1:-2] == [""] * (MOST_IN_VAIN + 4)
    assert all((nodes[0], *nodes[-2:]))
    planned.clear()
    assert not bench.node_of(pods[1])
    assert max(planned) > 1


@pytest.fixture
def slow_plans(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Each plan takes two seconds of the clock of the bench in the list."""
    benches: list[Bench] = []

    def slow(*args: Any, **more: Any) -> Any:
        for bench in benches:
            bench.state.now += 2 * SECOND
        return plan_group(*args, **more)

    monkeypatch.setattr(group_places, "plan_group", slow)
    return benches


def test_groups_of_one_namespace_take_an_eighth_of_the_time_for_plans(
    slow_plans: list[Bench],
) -> None:
    """Ten groups that never fit are called without a pause; those of others are always planned."""
    bench = Bench(1)
    groups = [bench.come(member(0, 20, f"h{group}"))[0] for group in range(10)]
    other = msgspec.structs.replace(member(0, group="o"), namespace="other")
    (other_pod,) = bench.come(other)
    slow_plans.append(bench)
    began, planned, refusals = bench.state.now, 0, set[str]()
    for number in range(600):
        before = bench.state.now
        refusals.add(bench.why(groups[number % 10]))
        planned += bench.state.now - before
        bench.state.now += SECOND // 10
        if number % 100 == 0:
            assert bench.cycles.could_go(other_pod, bench.gang(other_pod), NODES)
    waits = [text for text in refusals if "gets no new plan for another" in text]
    assert waits
    assert all(
        text.endswith("plans took too long for gangs of namespace default") for text in waits
    )
    burst = int(PLANNING_SECONDS + 4) * SECOND
    assert planned < burst + (bench.state.now - began) // 8


def test_a_group_with_a_plan_is_called_and_bound_while_its_namespace_gets_no_new_one() -> None:
    """No group is stopped half-way; another one reserves nothing, and is planned afterwards."""
    bench = Bench(2)
    first, second = bench.come(member(0), member(1))
    (late,) = bench.come(member(0, group="h"))
    node = bench.node_of(first)
    bench.plans_took(PLANNING_SECONDS)
    nodes = [node, bench.node_of(second)]
    assert all(nodes)
    assert "gets no new plan" in bench.why(late)
    assert not bench.cycles.could_go(late, bench.gang(late), NODES)
    for one, name in zip((first, second), nodes, strict=True):
        assert isinstance(bench.bind(one, name), Placement)
    assert len(bench.held()) == 2
    bench.state.now += int(PLANNING_SECONDS * RECOVERY) * SECOND
    assert bench.cycles.could_go(late, bench.gang(late), NODES)


def test_a_pod_that_gets_no_new_plan_leaves_the_others_their_places() -> None:
    """Two of three pods are placed together; kube-scheduler offers the second no node."""
    bench = Bench(2)
    first, second, third = bench.come(*map(member, range(3)))
    assert bench.node_of(first)
    bench.plans_took(15.0)
    assert not bench.node_of(second, ())
    assert bench.node_of(third)


@pytest.mark.parametrize(("seconds", "fits"), [(PLANNING_SECONDS, True), (15.0, False)])
def test_a_group_that_has_places_is_planned_for_longer(seconds: float, *, fits: bool) -> None:
    """One of its two pods is bound; the other one, whose place expired, is planned anew."""
    bench = Bench(2)
    first, second = bench.come(member(0), member(1))
    bench.bind(first, bench.node_of(first))
    [place] = [one for one in bench.held() if one.state is AllocationState.RESERVED]
    bench.state.forget(place.uid)
    bench.plans_took(seconds)
    assert bool(bench.node_of(second)) is fits


def test_a_bind_that_nobody_remembers_is_planned_whatever_plans_took() -> None:
    """kube-scheduler binds the other pods of the group too: all get places, or none does."""
    bench = Bench(2)
    first, _ = bench.come(member(0), member(1))
    bench.plans_took(PLANNING_SECONDS)
    assert isinstance(bench.bind(first, "a"), Placement)
    assert len(bench.held()) == 2


def test_a_later_cycle_of_a_group_that_runs_ends_like_any_other() -> None:
    """The status was true before, so it says nothing about this cycle."""
    bench = Bench(2)
    bench.groups.on_update(PodGroup("default", "g", 2, scheduled=True))
    first, _ = bench.come(member(0), member(1))
    bench.node_of(first)
    bench.wait(RELEASE_SECONDS)
    assert bench.reserved() == []


def test_the_pods_of_one_cycle_are_refused_for_one_reason() -> None:
    """Room that comes without an event counts in the next cycle, and with one at once."""
    bench = Bench(4)
    first, second, third, _ = bench.come(*map(member, range(4)))
    refusal = bench.why(first)
    bench.add_node("d")
    assert bench.why(second) == refusal
    assert not bench.node_of(third, (*NODES, D))
    assert bench.node_of(first, (*NODES, D))
    bench = Bench(4)
    first, second, third, _ = bench.come(*map(member, range(4)))
    bench.why(first)
    bench.cycles.changed()
    bench.why(second)
    bench.add_node("d")
    bench.cycles.changed()
    assert bench.node_of(third, (*NODES, D))


def test_a_group_could_go_once_it_is_complete_and_fits_on_the_offered_nodes() -> None:
    """Nothing is reserved by the question."""
    bench = Bench(3)
    first, _ = bench.come(member(0), member(1))
    gang = bench.gang(first)
    assert not bench.cycles.complete(first, gang)
    assert not bench.cycles.could_go(first, gang, NODES)
    assert bench.why(first) == (
        "gang podgroup/g waits for 1 of its 3 pods: 2 exist in namespace default"
    )
    bench.come(member(2))
    assert bench.cycles.complete(first, gang)
    assert bench.cycles.could_go(first, gang, NODES)
    assert not bench.cycles.could_go(first, gang, (A, B))
    assert bench.held() == []


@pytest.mark.parametrize("fits", range(4))
def test_places_that_the_namespace_reserved_for_others_count(fits: int) -> None:
    """The group needs one place and has three pods; the others left room for some of them."""
    bench = Bench(1)
    pods = bench.come(*map(member, range(3)))
    bench.reserve_for_others(MOST_RESERVED - fits)
    assert bench.cycles.could_go(pods[0], bench.gang(pods[0]), NODES) == bool(fits)
    assert len(list(filter(None, map(bench.node_of, pods)))) == fits
    if fits < 3:
        words = "1023 places are already reserved in namespace default"
        assert bench.why(pods[2]).endswith(words)


def test_the_own_places_of_a_group_do_not_count_against_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It may be planned anew although it has all places of its namespace."""
    monkeypatch.setattr("gpucore.gang.group_places.MOST_RESERVED", 2)
    bench = Bench(2)
    first, second = bench.come(member(0), member(1))
    assert bench.node_of(first, (A, B))
    assert bench.node_of(second, (A, B))
    assert len(bench.reserved()) == 2
    assert bench.cycles.could_go(first, bench.gang(first), NODES)


def test_places_of_another_namespace_do_not_count() -> None:
    """Each namespace has a limit of its own."""
    bench = Bench(3)
    pods = bench.come(*map(member, range(3)))
    bench.reserve_for_others(MOST_RESERVED, namespace="other")
    assert all(map(bench.node_of, pods))


def test_a_namespace_that_pauses_gets_no_new_plan() -> None:
    """After the pause, without any event; places that it has are used all the while."""
    bench = Bench(2)
    first, second = bench.come(member(0), member(1))
    now, limit = bench.state.now, int(LIMIT_SECONDS) * SECOND
    bench.state.reservation_time.charge("default", now - limit, now)
    assert "earlier reservations expired unused" in bench.why(first)
    assert not bench.cycles.could_go(first, bench.gang(first), NODES)
    bench.state.now += int(bench.state.reservation_time.pause("default", now)) * SECOND
    assert bench.node_of(first)
    now = bench.state.now
    bench.state.reservation_time.charge("default", now - limit, now)
    assert bench.node_of(second)


def test_a_new_plan_is_as_old_as_the_places_that_it_replaces() -> None:
    """Pods that are called again and again do not renew their reservations."""
    bench = Bench(2)
    first, second = bench.come(member(0), member(1))
    began = bench.state.now
    bench.node_of(first, (A, B))
    bench.state.now += SECOND
    bench.node_of(first, (C,))
    bench.node_of(second, (A,))
    assert {one.assume_time for one in bench.held()} == {began}


def test_a_pod_is_placed_beside_those_that_were_not_called() -> None:
    """Their places stay where they are, on nodes that this pod may not go to."""
    bench = Bench(3)
    first, second, third = bench.come(*(member(number, 4) for number in range(3)))
    node = bench.node_of(first)
    last = bench.place_of(third)
    [rest] = set(NODES).difference({node, last})
    assert bench.node_of(second, (rest,)) == rest
    assert bench.place_of(third) == last


def test_pods_of_an_owner_that_was_not_called_may_go_to_any_node() -> None:
    """The nodes of a call are those of its pod and of pods like it."""
    bench = Bench(3)
    other = msgspec.structs.replace(member(1), owner="job")
    first, second, third = bench.come(member(0), other, member(2))
    assert bench.node_of(first, (A, B)) in {"a", "b"}
    assert bench.place_of(second) == "c"
    assert bench.node_of(third, (A, B)) in {"a", "b"}


def nominated(number: int, node: NodeName) -> Pod:
    """A pod of the group for which kube-scheduler has evicted others from a node."""
    return msgspec.structs.replace(member(number), nominated=node)


def test_nominated_pods_are_planned_on_their_own_nodes() -> None:
    """kube-scheduler evicted pods on three nodes, and offers each pod its own node alone."""
    bench = Bench(3)
    pods = bench.come(*(nominated(number, node) for number, node in enumerate(NODES)))
    nodes = [bench.node_of(one, (node,)) for one, node in zip(pods, NODES, strict=True)]
    assert nodes == ["a", "b", "c"]


def test_a_nominated_pod_whose_node_is_full_goes_to_an_offered_node() -> None:
    """Another pod took the GPU: kube-scheduler offers the others next, without the nominated."""
    bench = Bench(2)
    first, second = bench.come(nominated(0, A), nominated(1, B))
    bench.others_take("a")
    assert not bench.node_of(first, (A,))
    assert bench.node_of(first, (A, C)) == "c"
    assert bench.node_of(second, (B,)) == "b"


def test_pods_that_are_not_nominated_go_where_they_are_offered() -> None:
    """The offer of a nominated pod, its own node, is none for the pods like it."""
    bench = Bench(3)
    first, second, third = bench.come(nominated(0, B), member(1), member(2))
    assert bench.node_of(first, (B,)) == "b"
    assert bench.node_of(second, (A,)) == "a"
    assert bench.node_of(third, (A, C)) == "c"


def test_a_nominated_pod_is_not_planned_on_a_node_that_it_is_not_offered() -> None:
    """Its nomination is out of date: the node has no CPU left."""
    bench = Bench(2)
    first, second = bench.come(nominated(0, A), member(1))
    assert bench.node_of(first, (B, C)) in {"b", "c"}
    assert bench.node_of(second, (B, C)) in {"b", "c"}


def test_a_nominated_pod_goes_to_a_node_that_it_is_offered() -> None:
    """Its own node has no CPU left, which the plan for the first pod could not know."""
    bench = Bench(2)
    first, second = bench.come(member(0), nominated(1, B))
    node = bench.node_of(first)
    [other] = {A, C}.difference({node})
    assert bench.place_of(second) == B
    assert bench.node_of(second, (A, C)) == other


def test_a_bind_that_nobody_remembers_gets_a_place_on_its_own_node() -> None:
    """The pod is nominated for another node, where kube-scheduler does not bind it."""
    bench = Bench(2)
    first, _ = bench.come(nominated(0, C), member(1))
    placement = bench.bind(first, "b")
    assert isinstance(placement, Placement)
    assert placement.node == "b"


def test_a_group_that_is_refused_in_a_later_cycle_keeps_nothing() -> None:
    """It had places for the nodes of the cycle before."""
    bench = Bench(2)
    first, _ = bench.come(member(0), member(1))
    assert bench.node_of(first)
    assert not bench.node_of(first, ())
    assert bench.held() == []


def test_a_bind_of_an_earlier_cycle_gives_up_the_places_of_the_later_one() -> None:
    """The second pod was called in the later one only."""
    bench = Bench(1)
    first, second = bench.come(member(0), member(1))
    assert bench.node_of(first, (A,)) == "a"
    assert bench.node_of(first, (B,)) == "b"
    assert bench.node_of(second, (B, C)) == "c"
    assert isinstance(bench.bind(first, "a"), Placement)
    assert [one.placement.node for one in bench.held()] == ["a"]


def test_calls_while_a_group_is_being_bound_keep_its_places() -> None:
    """A repeated call begins no other cycle, and a pod that comes late gets what is left."""
    bench = Bench(2)
    pods = bench.come(member(0), member(1))
    nodes = [bench.node_of(one) for one in pods]
    bench.bind(pods[0], nodes[0])
    [late] = bench.come(member(2))
    assert bench.node_of(late) not in {"", *nodes}
    assert bench.node_of(late)
    bench.wait(10 * RELEASE_SECONDS)
    assert len(bench.reserved()) == 2


def test_a_cycle_that_kube_scheduler_accepted_is_being_bound() -> None:
    """The status of the PodGroup says that binds will come, which wait for a volume."""
    bench = Bench(2)
    for one in bench.come(member(0), member(1)):
        bench.node_of(one)
    bench.groups.on_update(PodGroup("default", "g", 2, scheduled=True))
    assert bench.beside("h") == []
    bench.wait(10 * RELEASE_SECONDS)
    assert len(bench.reserved()) == 2


def test_a_later_cycle_of_an_accepted_group_is_accepted_anew() -> None:
    """All its pods were bound; one comes again, and its cycle ends without a bind."""
    bench = Bench(1)
    [first] = bench.come(member(0))
    node = bench.node_of(first)
    bench.groups.on_update(PodGroup("default", "g", 1, scheduled=True))
    assert bench.beside("h") == []
    bench.bind(first, node)
    [second] = bench.come(member(1))
    assert bench.node_of(second)
    assert bench.beside("h") == [GROUP]
    bench.wait(RELEASE_SECONDS)
    assert bench.reserved() == []


def test_a_group_that_is_made_again_under_its_name_is_accepted_anew() -> None:
    """The first group was accepted and is gone; binds of the second wait for a volume."""
    bench = Bench(2)
    old = bench.come(member(0), member(1))
    nodes = [bench.node_of(one) for one in old]
    bench.groups.on_update(PodGroup("default", "g", 2, scheduled=True))
    for one, node in zip(old, nodes, strict=True):
        bench.bind(one, node)
    bench.wait(RELEASE_SECONDS)
    for one in old:
        bench.state.gangs.drop(one.pod.uid)
        bench.state.ledger.forget(one.pod.uid)
    bench.groups.on_delete(PodGroup("default", "g", 2))
    bench.wait(RELEASE_SECONDS)
    bench.groups.on_update(PodGroup("default", "g", 2))
    for one in bench.come(member(2), member(3)):
        bench.node_of(one)
    bench.groups.on_update(PodGroup("default", "g", 2, scheduled=True))
    bench.wait(10 * RELEASE_SECONDS)
    assert len(bench.reserved()) == 2


def test_a_refusal_names_few_of_many_different_requests() -> None:
    """Each of thousands of nodes has the sentence, and a group may have a thousand requests."""
    bench = Bench(9)
    pods = bench.come(*(member(number, 1 + number) for number in range(9)))
    words = "1 x 1 GiB of GPU memory, 1 x 2 GiB of GPU memory, 1 x 3 GiB of GPU memory"
    text = bench.why(pods[0])
    assert words in text
    assert text.count(" x ") == 5
    assert "and 4 other requests" in text


def test_a_group_sees_the_plans_of_other_cycles_that_are_not_being_bound() -> None:
    """Not its own plan, nor one that was released."""
    bench = Bench(2)
    first, second = bench.come(member(0), member(1))
    assert bench.beside("h") == []
    node = bench.node_of(first)
    assert bench.beside("h") == [GROUP]
    assert bench.beside("g") == []
    bench.cycles.release(GROUP)
    assert len(bench.state.in_vain) == 2
    assert bench.beside("h") == []
    bench.node_of(first)
    bench.node_of(second)
    bench.bind(first, node)
    assert bench.beside("h") == []


def test_groups_of_one_composite_are_in_one_cycle() -> None:
    """kube-scheduler calls for the second one before it binds the first."""
    bench = Bench(1)
    for name in "gh":
        bench.groups.on_update(PodGroup("default", name, 1, parent="all"))
    [first] = bench.come(member(0))
    bench.node_of(first)
    assert bench.beside("h") == []
    assert bench.beside("i") == [GROUP]
