"""What counts against the limits of a round, and what does not."""

from collections.abc import Callable, Iterator

import pytest
from decoded import assume
from nominating import pending
from nominationbench import Bench, gang

from gpucore.nomination import CALLS, IN_ORDER
from gpuextender.nomination import nominator as nominator_module

Made = Callable[..., Bench]


def test_pods_that_fit_nowhere_take_no_place_within_the_limit(made: Made) -> None:
    """Single pods and gangs, and pods that wait for the end of a pause."""
    bench = made(limit=2)
    bench.comes(pending("large", 20), pending("huge", 30), gang("g0", mem=20), gang("g1", mem=20))
    bench.comes(pending("paused", 1))
    bench.nominator._failed(bench.state.find("default", "paused").pod.uid)
    bench.comes(pending("p", 1), pending("q", 1))
    bench.round()
    assert set(bench.reserved) == {"p", "q"}


def test_a_gang_of_which_one_pod_waits_for_the_end_of_a_pause_takes_no_place(made: Made) -> None:
    """Its first pod may be nominated, its second not: the next pod gets the place."""
    bench = made(limit=2)
    bench.comes(gang("g0", mem=2), gang("g1", mem=2))
    bench.nominator._failed(bench.state.find("default", "g1").pod.uid)
    bench.comes(pending("p", 1), pending("q", 1))
    bench.round()
    assert set(bench.reserved) == {"p", "q"}


def test_a_scheduler_that_calls_about_nominated_pods_takes_them_in_order(made: Made) -> None:
    """So no more of them are nominated ahead of it."""
    bench = made(sizes={"a": 99, "b": 99}, limit=1000)
    items = [pending(f"p{number}", 1) for number in range(80)]
    bench.comes(*items)
    bench.round()
    for item in items[:IN_ORDER]:
        bench.saw(item)
    assert CALLS == IN_ORDER
    bench.look()
    assert len(bench.reserved) == IN_ORDER


def test_a_pod_that_is_bound_while_nodes_are_rated_is_not_nominated(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rating many nodes lets its bind run."""
    bench.comes(pending("p", 8), pending("q", 8))
    ranking = bench.nominator._ranking
    refresh = ranking.refresh

    def slow(*args: object) -> Iterator[object]:
        pod = bench.state.find("default", "p").pod
        if bench.state.ledger.allocation(pod.uid) is None:
            assume(bench.state, pod, "a")
        yield from refresh(*args)

    monkeypatch.setattr(ranking, "refresh", slow)
    bench.round()
    assert set(bench.reserved) == {"q"}
    assert len(bench.replica.writes) == 1


def test_the_pods_of_a_gang_count_for_the_nodes_that_they_are_nominated_to(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A single pod of the same round goes to another node then."""
    monkeypatch.setattr(nominator_module, "MOST_ON_A_NODE", 2)
    bench.comes(gang("g0", mem=2, priority=9), gang("g1", mem=2, priority=9), pending("p", 2))
    bench.round()
    (node,) = {bench.reserved["g0"], bench.reserved["g1"]}
    assert bench.reserved["p"] != node
