"""The nodes that the pods of a PodGroup were offered, and what a plan makes of them."""

import tracemalloc

import msgspec
from corebuilders import pod, pod_request

from gpucore.gang.group_offers import MOST_KINDS, GroupOffers
from gpucore.gang.members import GroupMember, PlacementKind
from gpucore.gang.node_sets import NodeSets
from gpucore.units import NodeName

A, B, C = (NodeName(name) for name in "abc")
EVERY = frozenset({A, B, C})


def member(number: int, cpu: int, owner: str = "", nominated: str = "") -> GroupMember:
    """A pod with this CPU request."""
    one = pod(f"g{number}", 4)
    kind = PlacementKind(owner, "")
    return GroupMember(one.uid, pod_request(one), kind, NodeName(nominated), (("cpu", cpu),))


def nodes(
    offers: GroupOffers, *members: GroupMember, names: frozenset[NodeName] = EVERY
) -> list[list[str]]:
    """For each plan, the nodes of all pods but the first, in one text each."""
    found = offers.nodes(members, names, EVERY)
    return [["".join(sorted(each(one))) for one in members[1:]] for each in found]


def test_equal_pods_have_the_offer_of_the_last_call() -> None:
    """Pods of other requests are offered other nodes."""
    offers, small, large = GroupOffers(NodeSets()), member(0, 1), member(1, 2)
    offers.add(small, frozenset({A, B}))
    offers.add(small, frozenset({A}))
    offers.add(large, frozenset({B}))
    assert nodes(offers, small, member(2, 1), large) == [["a", "b"]]


def test_the_pod_that_is_called_has_its_own_offer() -> None:
    """Also where its kind was offered others."""
    offers, first = GroupOffers(NodeSets()), member(0, 1)
    offers.add(first, frozenset({A, B}))
    (plan,) = offers.nodes([first], frozenset({C}), EVERY)
    assert plan(first) == {C}


def test_a_kind_without_a_call_is_planned_like_its_likes_first() -> None:
    """They select the same nodes; the second plan is for every node."""
    offers, first = GroupOffers(NodeSets()), member(0, 1)
    offers.add(first, frozenset({A}))
    assert nodes(offers, first, member(1, 2)) == [["a"], ["abc"]]
    assert nodes(offers, first, member(1, 1, "job")) == [["abc"]]


def test_an_offer_of_an_earlier_cycle_is_not_certain() -> None:
    """The first plan goes by it, and the second does not, until the kind is called again."""
    offers, first, second = GroupOffers(NodeSets()), member(0, 1), member(1, 2)
    offers.add(first, frozenset({A}))
    offers.add(second, frozenset({B}))
    offers.begin()
    offers.add(first, frozenset({A, B}))
    assert nodes(offers, first, second) == [["b"], ["abc"]]
    offers.add(second, frozenset({C}))
    assert nodes(offers, first, second) == [["c"]]


def test_the_own_node_of_a_nominated_pod_is_no_offer_for_others() -> None:
    """kube-scheduler evaluates it alone and first."""
    offers, first = GroupOffers(NodeSets()), member(0, 1, nominated="a")
    offers.add(first, frozenset({A}))
    assert len(offers) == 0
    offers.add(first, frozenset({A, B}))
    assert nodes(offers, first, member(1, 1)) == [["ab"]]


def test_the_kinds_of_the_last_calls_are_remembered() -> None:
    """A kind that is called again is among them."""
    offers = GroupOffers(NodeSets())
    for cpu in (*range(MOST_KINDS), 0, MOST_KINDS):
        offers.add(member(cpu, cpu, str(cpu)), frozenset({A}))
    assert len(offers) == MOST_KINDS
    first = member(99, 99)
    kinds = [member(cpu, cpu, str(cpu)) for cpu in (0, 1, 2)]
    assert nodes(offers, first, *kinds) == [["a", "abc", "a"]]


def test_a_pod_without_known_requests_is_like_those_with_equal_gpu_requests() -> None:
    """Its constraints are read with the option ``nominate`` only."""
    one = msgspec.structs.replace(member(0, 1), requests=())
    assert one.like == msgspec.structs.replace(one, uid=member(1, 1).uid).like
    assert one.like != member(1, 1).like


def test_offers_of_many_kinds_take_little_memory() -> None:
    """Four groups of 16 kinds, each offered most of 5,000 nodes, take a megabyte with the names."""
    cluster = [f"a-node-with-a-long-name-{number}.example.com" for number in range(5000)]
    sets = NodeSets()
    members = [member(cpu, cpu, str(cpu)) for cpu in range(MOST_KINDS)]
    tracemalloc.start()
    groups = [GroupOffers(sets) for _ in range(4)]
    for number, offers in enumerate(groups):
        for cpu, one in enumerate(members):
            names = (NodeName("".join(name)) for name in cluster[number * MOST_KINDS + cpu :])
            offers.add(one, frozenset(names))
    taken, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert taken < 2_000_000, taken
    (plan,) = groups[0].nodes(members, frozenset(), frozenset())
    assert plan(members[-1]) == frozenset(cluster[MOST_KINDS - 1 :])
