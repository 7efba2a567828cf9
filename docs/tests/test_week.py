"""The page about simulated weeks shows the figures of its file."""

from statistics import fmean

import pytest
import weekpage


def test_the_tables_are_those_of_the_figures() -> None:
    """`python docs/generators/weekpage.py` writes the page anew."""
    text = weekpage.PAGE.read_text()
    assert weekpage.page(text, weekpage.figures()) == text
    assert weekpage.table(weekpage.figures()) in text
    assert weekpage.moves(weekpage.figures()) in text


def test_the_picture_is_that_of_the_figures() -> None:
    """`python docs/generators/weekpage.py` writes the picture anew."""
    assert weekpage.PICTURE.read_text() == weekpage.drawn(weekpage.figures())


def wasted(load: float, mix: str, policy: str) -> float:
    """Percent of all GPU hours."""
    return weekpage.part(weekpage.alike(weekpage.figures(), load, mix, policy), "wasted")


@pytest.mark.parametrize(("load", "mix"), weekpage.cases(weekpage.figures()))
def test_the_choice_follows_from_the_figures(load: float, mix: str) -> None:
    """Spread is the worst of the extender's policies; which is best depends on the mix."""
    binpack, fragmentation = (wasted(load, mix, each) for each in ("binpack", "fragmentation"))
    assert wasted(load, mix, "spread") > max(binpack, fragmentation)
    assert (fragmentation < binpack) is (mix == "multigpu50")


def test_the_seeds_that_the_page_compares_are_in_the_figures() -> None:
    """Their difference is the measure of chance."""
    runs = weekpage.alike(weekpage.figures(), 0.9, "default", "binpack")
    stated = [f"{weekpage.part([run], 'wasted'):.1f} % with seed {run['seed']}" for run in runs]
    text = " ".join(weekpage.PAGE.read_text().split())
    assert len(stated) == 2
    assert all(each in text for each in stated)


def test_several_gpus_wait_up_to_four_times_as_long_with_spread() -> None:
    """And for at least some hours with every policy."""
    runs = weekpage.figures()
    assert min(run["waiting"]["several-gpus"]["mean"] for run in runs) > 3 * 3600
    ratios = [
        _mean(runs, case, "spread") / _mean(runs, case, "binpack") for case in weekpage.cases(runs)
    ]
    assert 3 < max(ratios) <= 4


def _mean(runs: weekpage.Runs, case: tuple[float, str], policy: str) -> float:
    found = weekpage.alike(runs, *case, policy)
    return fmean(run["waiting"]["several-gpus"]["mean"] for run in found)


def test_defragmentation_moved_nothing() -> None:
    """In the two weeks measured."""
    moved = [run["moves"] for run in weekpage.figures() if run["defragmented"]]
    assert moved == [0, 0]
