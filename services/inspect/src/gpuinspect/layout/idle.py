"""The tables of ``gpushare idle``, also with ``--evict`` or ``--dry-run``."""

from collections import Counter
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Final

from gpucore.units import GIB_BYTES, counted
from gpucore.wire.pod.controllers import workload_of
from gpuinspect.idle.outcomes import IdleOutcome, IdlePodOutcome, IdleRun
from gpuinspect.queries.idle import IdleShare, IdleShares
from gpuinspect.terminal.ages import UNKNOWN, age
from gpuinspect.terminal.output import table

_WIDE: Final = ("NODE", "GPU-HOURS", "COST")
_HEAD: Final = ("NAMESPACE", "POD", "WORKLOAD", "IDLE", "OUTCOME", "NOT BEFORE", "REASON")
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


def idle(
    found: IdleShares, at: datetime, *, price: float, wide: bool = False, headers: bool = True
) -> str:
    """One line a pod, and the sum; ``wide`` adds its node and what the idle time has cost."""
    heads = ("NAMESPACE", "POD", "WORKLOAD", f"MEMORY({found.unit})", "USED(GiB)", "IDLE", "AGE")
    rows = (_row(share, at, price, wide=wide) for share in found.shares)
    return table((*heads, *(_WIDE if wide else ())), rows, headers=headers)


def _row(share: IdleShare, at: datetime, price: float, *, wide: bool) -> tuple[str, ...]:
    idle_from = (at - timedelta(seconds=share.idle_seconds)).isoformat()
    cost = f"{share.cost(price):.2f}" if price else "-"
    more = (share.node, f"{share.gpu_hours:.1f}", cost) if wide else ()
    workload = f"{share.kind.lower()}/{share.workload}"
    used = f"{share.used_bytes / GIB_BYTES:.1f}"
    first = (share.namespace, share.name, workload, str(share.units), used)
    return (*first, age(idle_from, at), age(share.since, at), *more)


def idle_eviction(run: IdleRun, at: datetime, *, headers: bool = True) -> str:
    """A line a pod, and what the run did."""
    rows = [_eviction_row(each, at) for each in run.outcomes]
    shown = table(_HEAD, rows, headers=headers and bool(rows))
    return shown + f"{conclusion(run)}\n" if headers else shown


def conclusion(run: IdleRun) -> str:
    """Numbers of pods by what became of them, and why a run ended early."""
    counts = Counter(each.outcome for each in run.outcomes)
    words = _DONE if run.applied else _DRY
    parts = [
        text.format(counted(counts[each], "pod")) for each, text in words.items() if counts[each]
    ]
    start = "" if run.applied else "dry run: "
    stopped = f"; stopped: {run.stopped}" if run.stopped else ""
    return start + (", ".join(parts) or "no pod is idle") + stopped


def _eviction_row(each: IdlePodOutcome, at: datetime) -> tuple[str, ...]:
    pod = each.pod
    kind, workload = workload_of(pod.pod, pod.controller)
    idle = age(_moment(pod.last_use), at) if pod.idle_since else UNKNOWN
    after = _moment(each.evict_after)[:16] + "Z" if each.evict_after else UNKNOWN
    first = (pod.namespace, pod.name, f"{kind.lower()}/{workload}", idle)
    return (*first, str(each.outcome), after, each.reason or UNKNOWN)


def _moment(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat()
