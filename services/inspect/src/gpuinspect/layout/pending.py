"""The table of ``gpushare pending``: the reason is last, so that it may be long."""

from collections.abc import Iterable
from datetime import datetime
from typing import Final

from gpuinspect.queries.scheduling_status import SchedulingStatus
from gpuinspect.terminal.ages import age
from gpuinspect.terminal.tables import align
from gpuinspect.terminal.wrapping import one_line

_HEADS: Final = ("NAMESPACE", "NAME", "AGE", "REQUESTS")
_WIDE: Final = ("STATE", "SCHEDULER", "SINCE")


def pending(
    waiting: Iterable[SchedulingStatus], at: datetime, *, wide: bool = False, headers: bool = True
) -> str:
    """One line a pod; ``wide`` adds its state, its scheduler and the time of its creation."""
    heads = (*_HEADS, *(_WIDE if wide else ()), "REASON")
    rows = [heads] if headers else []
    rows += [_row(each, at, wide=wide) for each in waiting]
    return align("".join("\t".join(row) + "\n" for row in rows))


def _row(status: SchedulingStatus, at: datetime, *, wide: bool) -> tuple[str, ...]:
    pod = status.pod
    more = (status.state.label, pod.scheduler_name or "-", pod.creation or "-") if wide else ()
    first = (pod.namespace, pod.name, age(pod.creation, at), status.found.request_summary)
    return (*first, *more, one_line(status.reason))
