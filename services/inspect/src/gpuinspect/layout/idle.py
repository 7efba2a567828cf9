"""The table of ``gpushare idle``."""

from datetime import datetime, timedelta
from typing import Final

from gpuinspect.queries.idle import IdleShare, IdleShares
from gpuinspect.terminal.ages import age
from gpuinspect.terminal.tables import align

_GIB: Final = 1 << 30
_WIDE: Final = ("NODE", "GPU-HOURS", "COST")


def idle(
    found: IdleShares, at: datetime, *, price: float, wide: bool = False, headers: bool = True
) -> str:
    """One line a pod, and the sum; ``wide`` adds its node and what the idle time has cost."""
    heads = ("NAMESPACE", "POD", "WORKLOAD", f"MEMORY({found.unit})", "USED(GiB)", "IDLE", "AGE")
    rows = [(*heads, *(_WIDE if wide else ()))] if headers else []
    rows += [_row(share, at, price, wide=wide) for share in found.shares]
    return align("".join("\t".join(row) + "\n" for row in rows))


def _row(share: IdleShare, at: datetime, price: float, *, wide: bool) -> tuple[str, ...]:
    idle_from = (at - timedelta(seconds=share.idle_seconds)).isoformat()
    cost = f"{share.cost(price):.2f}" if price else "-"
    more = (share.node, f"{share.gpu_hours:.1f}", cost) if wide else ()
    workload = f"{share.kind.lower()}/{share.workload}"
    used = f"{share.used_bytes / _GIB:.1f}"
    first = (share.namespace, share.name, workload, str(share.units), used)
    return (*first, age(idle_from, at), age(share.since, at), *more)
