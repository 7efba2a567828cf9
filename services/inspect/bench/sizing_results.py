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
    history, week = recorded(workload, seed, interval), runs(workload, seed, 1)
    running = sum(run.end - run.begin for run in week) / HOUR
    found: dict[int, Applied] = {}
    for margin in margins:
        rules = SizingRules(margin=margin, gpu_sizes=sizes)
        advice = recommend(history, UNIT, rules) if history else None
        alone = _alone(workload, advice)
        size = advice.size if advice and not alone else None
        limit = size.limit * GIB if size else workload.request
        spent, again = hours(workload, week, limit), dict[bool, Hours]()
        if history and spent.failed:
            for known in (True, False):
                second = SecondWeek(workload, seed, history, rules, interval, known=known)
                again[known] = second.played(limit)
        found[margin] = Applied(
            spent, running * limit / GIB, alone, again.get(True), again.get(False)
        )
    before = running * workload.request / GIB
    total = hours(workload, week, workload.request).total
    return Result(seed, workload.shape, workload.exclusive, before, total, found)


def _alone(workload: Workload, found: Recommendation | None) -> str:
    """Why a workload keeps its size; empty for one that does not."""
    if found is None or workload.once:
        return "runs once"
    if found.size is None:
        return str(found.reason)
    return "size is right" if found.size == found.current else ""


def tables(results: Sequence[Result], margins: Sequence[int], default: int) -> Iterator[str]:
    """Markdown: margins, classes, workloads that kept their size, and what events change."""
    yield "| margin | pod hours without out-of-memory | of programs that nobody changed | freed |"
    yield "|---|---|---|---|"
    for margin in margins:
        cells = (
            f"{margin} %",
            _spread(results, lambda each, m=margin: kept(each, m)),
            _spread(results, lambda each, m=margin: kept(each, m, changed=False)),
            _spread(results, lambda each, m=margin: freed(each, m)),
        )
        yield _row(cells)
    yield ""
    yield from _sharing(results, margins)
    yield ""
    yield from _classes(results, margins)
    yield ""
    yield from _left(results, default)
    yield ""
    yield from _events(results, margins)


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
    yield "| margin | freed of shares | without out-of-memory | of whole GPUs | without |"
    yield "|---|---|---|---|---|"
    for margin in margins:
        cells = [f"{margin} %"]
        for exclusive in (False, True):
            of = [each for each in results if each.exclusive is exclusive]
            cells.append(_spread(of, lambda each, m=margin: freed(each, m)))
            cells.append(_spread(of, lambda each, m=margin: kept(each, m)))
        yield _row(cells)


def _classes(results: Sequence[Result], margins: Sequence[int]) -> Iterator[str]:
    yield _row(("pod hours without out-of-memory", *(f"{margin} %" for margin in margins)))
    yield _row("---" for _ in range(len(margins) + 1))
    for shape in Shape:
        of = [each for each in results if each.shape is shape]
        cells = (_spread(of, lambda each, m=margin: kept(each, m)) for margin in margins)
        yield _row((f"{shape} ({len(of)})", *cells))


def _left(results: Sequence[Result], margin: int) -> Iterator[str]:
    """At one margin."""
    yield _row(("kept their size", *Shape))
    yield _row("---" for _ in range(len(Shape) + 1))
    counts = Counter((each.by_margin[margin].alone, each.shape) for each in results)
    for why in sorted({why for why, _ in counts}, key=lambda why: (not why, why)):
        yield _row((why or "changed size", *(str(counts[why, shape]) for shape in Shape)))


def _events(results: Sequence[Result], margins: Sequence[int]) -> Iterator[str]:
    yield "| margin | pod hours with out-of-memory | raised, events known | raised, unknown |"
    yield "|---|---|---|---|"
    for margin in margins:
        found = [each.by_margin[margin] for each in results]
        known = sum((each.events_known or each.hours).failed for each in found)
        unknown = sum((each.events_unknown or each.hours).failed for each in found)
        once, total = sum(each.hours.failed for each in found), sum(each.total for each in results)
        cells = (
            f"{count} ({100 * count / max(total, 1):.3f} %)" for count in (once, known, unknown)
        )
        yield _row((f"{margin} %", *cells))


def _spread(results: Sequence[Result], figure: Callable[[Sequence[Result]], float]) -> str:
    """Mean, least and most of the seeds."""
    by_seed: dict[int, list[Result]] = {}
    for each in results:
        by_seed.setdefault(each.seed, []).append(each)
    values = [figure(found) for found in by_seed.values()]
    if not values:
        return "-"
    digits = 3 if min(values) > 90 else 1
    low, high = f"{min(values):.{digits}f}", f"{max(values):.{digits}f}"
    return f"{fmean(values):.{digits}f} % ({low} to {high})"


def _row(cells: "Iterator[str] | Sequence[str]") -> str:
    return f"| {' | '.join(cells)} |"
