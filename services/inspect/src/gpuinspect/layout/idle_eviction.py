"""The table of ``gpushare idle`` with ``--evict`` or ``--dry-run``, and its last line."""

from collections import Counter
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final

from gpucore.sizing.workloads import workload_of
from gpuinspect.idle.outcomes import IdleOutcome, IdlePodOutcome, IdleRun
from gpuinspect.terminal.ages import UNKNOWN, age
from gpuinspect.terminal.tables import align

_HEAD: Final = "NAMESPACE\tPOD\tWORKLOAD\tIDLE\tOUTCOME\tNOT BEFORE\tREASON\n"
_DONE: Final[Mapping[IdleOutcome, str]] = {
    IdleOutcome.EVICTED: "evicted {}",
    IdleOutcome.NOTICED: "gave notice to {}",
    IdleOutcome.WAITS: "{} in the grace time",
    IdleOutcome.POSTPONED: "{} postponed",
    IdleOutcome.REFUSED: "{} refused by the cluster",
    IdleOutcome.SPARED: "{} spared",
}
_DRY: Final[Mapping[IdleOutcome, str]] = {
    **_DONE,
    IdleOutcome.EVICTED: "--evict evicts {}",
    IdleOutcome.NOTICED: "--evict gives notice to {}",
}


def idle_eviction(run: IdleRun, at: datetime, *, headers: bool = True) -> str:
    """A line a pod, and what the run did."""
    rows = "".join(_row(each, at) for each in run.outcomes)
    if not headers:
        return align(rows)
    return align((_HEAD if rows else "") + rows) + f"{conclusion(run)}\n"


def conclusion(run: IdleRun) -> str:
    """Numbers of pods by what became of them, and why a run ended early."""
    counts = Counter(each.outcome for each in run.outcomes)
    words = _DONE if run.applied else _DRY
    parts = [text.format(_pods(counts[each])) for each, text in words.items() if counts[each]]
    start = "" if run.applied else "dry run: "
    stopped = f"; stopped: {run.stopped}" if run.stopped else ""
    return start + (", ".join(parts) or "no pod is idle") + stopped


def _row(each: IdlePodOutcome, at: datetime) -> str:
    pod = each.pod
    kind, workload = workload_of(pod.pod, pod.controller)
    idle = age(_moment(pod.last_use), at) if pod.idle_since else UNKNOWN
    after = _moment(each.evict_after)[:16] + "Z" if each.evict_after else UNKNOWN
    first = f"{pod.namespace}\t{pod.name}\t{kind.lower()}/{workload}\t{idle}"
    return f"{first}\t{each.outcome}\t{after}\t{each.reason or UNKNOWN}\n"


def _moment(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat()


def _pods(number: int) -> str:
    return "1 pod" if number == 1 else f"{number} pods"
