"""Over which nodes the equal pods of a gang are distributed, and how many go to each."""

import random
from types import SimpleNamespace

import pytest
from corebuilders import NAMES, ledger, make_gpus, pod, pod_request, share_node

from gpucore.gang.spread import NodeOffer, spread_over
from gpucore.scheduling.grouping import BY_LINKS, Rules
from gpucore.units import NodeName

UNITS = 16


def distribution(
    count: int, used: dict[str, int], *, mem: int = 4, policy: str = "binpack", home: str = ""
) -> list[tuple[str, int]]:
    """Nodes with the number of pods on each, of nodes with one GPU that is used in part."""
    nodes = [share_node(name, make_gpus(UNITS)) for name in used]
    on_gpu = {NAMES.mem_idx: "0"}
    holders = [
        pod(f"on-{name}", units, node=name, annotations=on_gpu)
        for name, units in used.items()
        if units
    ]
    infos = ledger(*nodes, *holders).nodes()
    request, rules = pod_request(pod("p", mem)), Rules(policy, BY_LINKS)
    offers = [NodeOffer(infos[NodeName(name)], request, rules, most=count) for name in used]
    homes = [NodeName(name) for name in home]
    return [(offer.name, load) for offer, load in spread_over(offers, count, homes)]


@pytest.mark.parametrize(("policy", "expected"), [("binpack", "a"), ("spread", "b")])
def test_the_policy_chooses_among_nodes_that_fit_all_pods(policy: str, expected: str) -> None:
    """As for a pod of no gang: the fuller node, or the emptier one."""
    assert distribution(2, {"a": 4, "b": 0}, policy=policy) == [(expected, 2)]


def test_a_better_node_that_fits_fewer_goes_first_where_no_node_more_is_needed() -> None:
    """Ten pods need three nodes in any case, so the fullest of them is filled."""
    assert distribution(10, {"a": 0, "b": 0, "c": 4}) == [("c", 3), ("a", 4), ("b", 3)]


def test_a_node_is_not_preferred_where_one_node_more_would_be_needed() -> None:
    """Four pods fit one node: the fuller node, which fits three, is not used."""
    assert distribution(4, {"a": 4, "b": 0}) == [("b", 4)]


def test_nodes_of_the_gang_come_before_better_ones() -> None:
    """The pods that come later join the others, though another node fits all of them."""
    assert distribution(4, {"a": 8, "b": 0}, home="a") == [("a", 2), ("b", 2)]


def test_pods_that_do_not_all_fit_go_nowhere() -> None:
    """One more than fits."""
    assert distribution(8, {"a": 0, "b": 0}) == [("a", 4), ("b", 4)]
    assert distribution(9, {"a": 0, "b": 0}) == []


class Rated:
    """A node whose quality depends on the number of pods; counts how often it is rated."""

    def __init__(self, name: str, room: int, best: list[float]) -> None:
        self.name, self.room, self.ratings = NodeName(name), room, 0
        self.node_info = SimpleNamespace(free_gpus=room)
        self._best = best

    def goodness(self, count: int) -> float:
        """How good the node is for so many pods."""
        self.ratings += 1
        return self._best[count]


def rated(dice: random.Random, nodes: int, most: int) -> list[Rated]:
    """Nodes of random room and quality."""
    return [
        Rated(f"n{number:03}", dice.randint(0, most), [dice.randint(0, 3) for _ in range(most + 1)])
        for number in range(nodes)
    ]


def simply(offers: list[Rated], count: int) -> list[tuple[str, int]]:
    """Each time, the best of all nodes that keeps their number least."""
    left, found = list(offers), list[tuple[str, int]]()
    while count:
        rest = count
        for room in sorted((one.room for one in left), reverse=True):
            if room >= rest:
                break
            rest -= room
        ranks = {
            (-one.goodness(min(one.room, count)), one.room, one.name): one
            for one in left
            if one.room >= rest
        }
        best = ranks[min(ranks)]
        load = min(best.room, count)
        found.append((best.name, load))
        left.remove(best)
        count -= load
    return found


@pytest.mark.parametrize("seed", range(50))
def test_the_nodes_are_those_that_a_look_at_all_nodes_for_each_gives(seed: int) -> None:
    """In the same order, with the same numbers of pods."""
    dice = random.Random(seed)
    offers = rated(dice, nodes=dice.randint(1, 12), most=dice.randint(1, 6))
    count = dice.randint(0, sum(one.room for one in offers))
    found = spread_over(offers, count, ())  # type: ignore[arg-type]
    assert [(one.name, load) for one, load in found] == simply(offers, count)


def test_each_node_is_rated_once_for_a_gang_of_many_nodes() -> None:
    """A gang may take a thousand of thousands of nodes, and the extender answers others."""
    offers = [Rated(f"n{number:04}", 1, [0.0, 0.0]) for number in range(400)]
    assert len(spread_over(offers, 300, ())) == 300  # type: ignore[arg-type]
    assert sum(one.ratings for one in offers) <= 400 + 101
