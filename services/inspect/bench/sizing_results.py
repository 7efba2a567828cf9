"""What recommended sizes free and break: the result of one workload, sums of them, and tables."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from statistics import fmean
from typing import Final, NamedTuple

from sizing_weeks import GIB, UNIT, Hours, SecondWeek, hours, recorded
from workload_shapes import HOUR, Shape, Workload, runs

from gpucore.sizing.evidence import SizingRules
from gpucore.sizing.recommendation import Recommendation, recommend

BAR_HOURS: Final = 99.9
BAR_FREED: Final = 30.0


class Applied(NamedTuple):
    """A workload in the second week, with one margin.

    Attributes:
        hours: with the size that was recommended after the first week.
        gib_hours: of its requests.
        alone: why it kept its size; empty where it did not.
        events_known, events_unknown: pod hours if its size is recommended anew after each
            out-of-memory; empty where there is none.
    """

    hours: Hours
    gib_hours: float
    alone: str
    events_known: Hours | None = None
    events_unknown: Hours | None = None


class Result(NamedTuple):
    """A workload in the second week."""

    seed: int
    shape: Shape
    exclusive: bool
    gib_hours: float
    total: int
    by_margin: Mapping[int, Applied]


def result(
    workload: Workload, seed: int, margins: Sequence[int], sizes: tuple[int, ...], interval: float
) -> Result:
    """Record the first week of a workload, then apply what each margin recommends."""
    nodes, week = recorded(workload, seed, interval), runs(workload, seed, 1)
    history = nodes.merged()
    running = sum(run.end - run.begin for run in week) / HOUR
    found: dict[int, Applied] = {}
    for margin in margins:
        rules = SizingRules(margin=margin, gpu_sizes=sizes)
        advice = recommend(history, UNIT, rules)
        alone = _alone(workload, advice)
        size = None if alone else advice.size
        limit = size.limit * GIB if size else workload.request
        spent, again = hours(workload, week, limit), dict[bool, Hours]()
        if spent.failed:
            for known in (True, False):
                second = SecondWeek(workload, seed, nodes, rules, known=known)
                again[known] = second.played(limit)
        found[margin] = Applied(
            spent, running * limit / GIB, alone, again.get(True), again.get(False)
        )
    before = running * workload.request / GIB
    total = hours(workload, week, workload.request).total
    return Result(seed, workload.shape, workload.exclusive, before, total, found)


def _alone(workload: Workload, found: Recommendation) -> str:
    """Why a workload keeps its size; empty for one that does not."""
    if workload.once:
        return "runs once"
    if found.size is None:
        return str(found.reason)
    return "size is right" if found.size == found.current else ""


def tables(results: Sequence[Result], margins: Sequence[int], default: int) -> Iterator[str]:
    """Markdown: margins, classes, workloads that kept their size, and what events change."""
    for part in (
        _margins(results, margins),
        _sharing(results, margins),
        _classes(results, margins, default),
        _left(results, default),
        _events(results, margins),
    ):
        yield from part
        yield ""


def _margins(results: Sequence[Result], margins: Sequence[int]) -> Iterator[str]:
    yield from _head("margin", "pod hours without out-of-memory", "unchanged programs", "freed")
    for margin in margins:
        yield _row(
            f"{margin} %",
            _spread(results, lambda each, m=margin: kept(each, m)),
            _spread(results, lambda each, m=margin: kept(each, m, changed=False)),
            _spread(results, lambda each, m=margin: freed(each, m)),
        )


def kept(results: Sequence[Result], margin: int, *, changed: bool = True) -> float:
    """Percentage of the pod hours without an out-of-memory."""
    found = Hours()
    for each in results:
        found = found.plus(each.by_margin[margin].hours)
    failed = found.failed - (0 if changed else found.changed)
    return 100 - 100 * failed / max(found.total, 1)


def freed(results: Sequence[Result], margin: int) -> float:
    """Percentage of the requested memory, over time, that the sizes free."""
    before = sum(each.gib_hours for each in results)
    return 100 - 100 * sum(each.by_margin[margin].gib_hours for each in results) / max(before, 1)


def _sharing(results: Sequence[Result], margins: Sequence[int]) -> Iterator[str]:
    of = ("shares", "whole GPUs")
    yield from _head("margin", *(f"{each}: {what}" for each in of for what in ("freed", "without")))
    for margin in margins:
        cells = [f"{margin} %"]
        for exclusive in (False, True):
            found = [each for each in results if each.exclusive is exclusive]
            cells.append(_spread(found, lambda each, m=margin: freed(each, m)))
            cells.append(_spread(found, lambda each, m=margin: kept(each, m)))
        yield _row(*cells)


def _classes(results: Sequence[Result], margins: Sequence[int], default: int) -> Iterator[str]:
    head = (f"without, {margin} %" for margin in margins)
    yield from _head("class", "workloads", "pod hours", *head, f"freed, {default} %")
    for shape in Shape:
        of = [each for each in results if each.shape is shape]
        yield _row(
            str(shape),
            str(len(of)),
            f"{sum(each.total for each in of):,}",
            *(f"{kept(of, margin):.3f} %" for margin in margins),
            f"{freed(of, default):.1f} %",
        )


def _left(results: Sequence[Result], margin: int) -> Iterator[str]:
    """At one margin."""
    yield from _head(f"size, {margin} %", *Shape)
    counts = Counter((each.by_margin[margin].alone, each.shape) for each in results)
    for why in sorted({why for why, _ in counts}, key=lambda why: (bool(why), why)):
        kept_size = f"kept: {why}" if why else "changed"
        yield _row(kept_size, *(str(counts[why, shape]) for shape in Shape))


def _events(results: Sequence[Result], margins: Sequence[int]) -> Iterator[str]:
    head = ("size stays", "raised, events known", "raised, events unknown")
    yield from _head("pod hours with out-of-memory", *head)
    total = max(sum(each.total for each in results), 1)
    for margin in margins:
        found = [each.by_margin[margin] for each in results]
        counts = (
            sum(each.hours.failed for each in found),
            sum((each.events_known or each.hours).failed for each in found),
            sum((each.events_unknown or each.hours).failed for each in found),
        )
        yield _row(f"{margin} %", *(f"{n} ({100 * n / total:.3f} %)" for n in counts))


def _spread(results: Sequence[Result], figure: Callable[[Sequence[Result]], float]) -> str:
    """Mean, least and most of the seeds."""
    by_seed: dict[int, list[Result]] = {}
    for each in results:
        by_seed.setdefault(each.seed, []).append(each)
    values = [figure(found) for found in by_seed.values()]
    if not values:
        return "-"
    digits = 2 if min(values) > 90 else 1
    low, high = f"{min(values):.{digits}f}", f"{max(values):.{digits}f}"
    return f"{fmean(values):.{digits}f} % ({low} to {high})"


def _head(*cells: str) -> Iterator[str]:
    yield _row(*cells)
    yield f"|{'---|' * len(cells)}"


def _row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"
