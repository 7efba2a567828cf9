"""The page about simulated weeks shows the figures of its file."""

from collections.abc import Callable
from statistics import fmean
from typing import Any

import pytest
import weekpage


def test_the_tables_are_those_of_the_figures() -> None:
    """`python docs/generators/weekpage.py` writes the page anew."""
    text = weekpage.PAGE.read_text()
    assert weekpage.page(text, weekpage.figures()) == text
    assert weekpage.table(weekpage.figures()) in text
    assert weekpage.pairs(weekpage.figures()) in text
    assert weekpage.moves(weekpage.figures()) in text


def test_the_picture_is_that_of_the_figures() -> None:
    """`python docs/generators/weekpage.py` writes the picture anew."""
    assert weekpage.PICTURE.read_text() == weekpage.drawn(weekpage.figures())


Value = Callable[[dict[str, Any]], float]
CASES = weekpage.cases(weekpage.figures())


def beside_binpack(
    case: tuple[float, str], policy: str, value: Value = weekpage.wasted
) -> weekpage.Difference:
    """What a policy has more than binpack in the weeks of the same seeds."""
    runs = weekpage.figures()
    these, those = (weekpage.alike(runs, *case, each) for each in (policy, "binpack"))
    return weekpage.difference(these, those, value)


def test_every_case_has_five_weeks() -> None:
    """With the seeds that the page names."""
    runs = weekpage.figures()
    for case in CASES:
        for policy in weekpage.POLICIES:
            seeds = {run["seed"] for run in weekpage.alike(runs, *case, policy)}
            assert seeds == {42, 43, 44, 45, 46}


def test_spread_wasted_more_in_every_week() -> None:
    """By the points and hours that the page states; shares and pods with one GPU waited less."""
    found = [beside_binpack(case, "spread") for case in CASES]
    assert sum(each.pairs for each in found) == 30
    assert not any(each.lower for each in found)
    assert (round(min(each.mean for each in found)), round(max(each.mean for each in found))) == (
        4,
        12,
    )
    waits = [beside_binpack(case, "spread", weekpage.waited) for case in CASES]
    assert all(each.decided for each in waits)
    assert (round(min(each.mean for each in waits)), round(max(each.mean for each in waits))) == (
        10,
        42,
    )
    for name in ("share", "one-gpu"):
        assert all(
            mean_wait(case, "spread", name) < mean_wait(case, "binpack", name) for case in CASES
        )


def mean_wait(case: tuple[float, str], policy: str, name: str) -> float:
    """Seconds."""
    found = weekpage.alike(weekpage.figures(), *case, policy)
    return fmean(run["waiting"][name]["mean"] for run in found)


def test_binpack_and_fragmentation_differ_where_the_page_says() -> None:
    """Decided in one case; in the others by the number of weeks."""
    found = {case: beside_binpack(case, "fragmentation") for case in CASES}
    decided = {case: round(each.mean, 1) for case, each in found.items() if each.decided}
    assert decided == {(0.9, "gpushare40"): 4.1}
    waits = beside_binpack((0.9, "gpushare40"), "fragmentation", weekpage.waited)
    assert (waits.decided, round(waits.mean)) == (True, 12)
    assert found[0.9, "default"].lower == 1
    assert [found[load, "multigpu50"].lower for load in (0.9, 1.1)] == [4, 4]


def test_the_published_algorithm_is_better_in_one_case() -> None:
    """Of these mixes and loads, in all its weeks."""
    found = {case: beside_binpack(case, "published") for case in CASES}
    [(case, one)] = [(case, each) for case, each in found.items() if each.decided]
    assert (case, one.lower, one.pairs) == ((1.1, "multigpu50"), 5, 5)
    runs = weekpage.figures()
    ours = [
        weekpage.difference(
            weekpage.alike(runs, *case, "fragmentation"),
            weekpage.alike(runs, *case, "published"),
            weekpage.wasted,
        )
        for case in CASES
    ]
    assert not any(each.decided for each in ours)
    assert sum(each.mean > 0 for each in ours) == 5


def test_several_gpus_wait_for_hours_with_every_policy() -> None:
    """And for more than a day with some."""
    waits = [weekpage.waited(run) for run in weekpage.figures()]
    assert min(waits) > 2
    assert max(waits) > 48


def test_a_difference_is_decided_beyond_its_margin() -> None:
    """Paired by seed: weeks without a partner do not count."""
    runs = [{"seed": seed, "x": float(x)} for seed, x in ((1, 10), (2, 20), (3, 30), (4, 99))]
    less = [{"seed": seed, "x": float(x)} for seed, x in ((3, 28), (1, 9), (2, 17))]
    found = weekpage.difference(less, runs, lambda run: run["x"])
    assert (found.mean, found.lower, found.pairs) == (-2.0, 3, 3)
    assert found.margin == pytest.approx(4.30 * 1.0 / 3**0.5)
    assert str(found) == "-2.0 ± 2.5, 3 of 3"
    close = weekpage.difference(
        less[:2], [{**run, "x": run["x"] + 1} for run in less], lambda run: run["x"]
    )
    assert (close.decided, str(close)) == (True, "**-1.0 ± 0.0, 2 of 2**")


def test_defragmentation_moved_pods_and_wasted_less() -> None:
    """By the points that the page states, in the weeks of the same seeds."""
    runs, found, moves = weekpage.figures(), {}, []
    for case in weekpage.moved(runs):
        on = weekpage.alike(runs, *case, defragmented=True)
        found[case] = weekpage.difference(on, weekpage.alike(runs, *case), weekpage.wasted)
        moves.append(fmean(run["moves"] for run in on))
    assert (round(min(moves)), round(max(moves))) == (6, 25)
    default = {policy: found[0.9, "default", policy] for policy in weekpage.POLICIES[:3]}
    assert {policy: (round(-each.mean, 1), each.lower) for policy, each in default.items()} == {
        "binpack": (2.4, 4),
        "spread": (3.7, 5),
        "fragmentation": (0.9, 4),
    }
    assert [case[2] for case, each in found.items() if each.decided] == ["fragmentation"]
    assert found[0.9, "multigpu50", "spread"].lower == 2
    assert all(each.pairs == 5 for each in found.values())
