"""The tables of ``gpushare usage``."""

from collections.abc import Sequence
from typing import Final

from gpuinspect.queries.usage import GroupUsage, UsageReport
from gpuinspect.terminal.tables import align
from gpuinspect.terminal.wrapping import one_line

LIMITED: Final = "NAMESPACE"
"""Title of the groups that have quotas."""
NONE: Final = "-"
_GIB: Final = 1 << 30


def of_pods(report: UsageReport, title: str, *, used: bool, headers: bool = True) -> str:
    """One line a namespace or label; ``used`` adds memory in use."""
    unit = f"({report.unit or 'units'})"
    heads = [title, "PODS", f"GRANTED{unit}", "EXCLUSIVE GPUS"]
    heads += [f"LIMIT{unit}"] if title == LIMITED else []
    heads += ["USED(GiB)"] if used else []
    heads += ["WAITING PODS", f"WAITING{unit}", "WAITING GPUS"]
    return _table(
        heads,
        [_pods(group, used=used, limits=title == LIMITED) for group in report.groups],
        headers=headers,
    )


def of_gpus(report: UsageReport, title: str, *, used: bool, headers: bool = True) -> str:
    """One line a node or model; ``used`` adds memory in use."""
    heads = [title, "PODS", "GPUS", f"GRANTED({report.unit})", f"TOTAL({report.unit})", "GRANTED%"]
    heads += ["USED(GiB)"] if used else []
    return _table(heads, [_gpus(group, used=used) for group in report.groups], headers=headers)


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]], *, headers: bool) -> str:
    shown = [heads, *rows] if headers else rows
    return align("".join("\t".join(row) + "\n" for row in shown))


def _pods(group: GroupUsage, *, used: bool, limits: bool) -> list[str]:
    row = [one_line(group.name), str(group.pods), str(group.granted), str(group.gpus)]
    row += [NONE if group.limit is None else str(group.limit)] if limits else []
    row += [_gib(group.used_bytes)] if used else []
    return [*row, str(group.waiting_pods), str(group.waiting), str(group.waiting_gpus)]


def _gpus(group: GroupUsage, *, used: bool) -> list[str]:
    total = group.total or 0
    percent = f"{100 * group.granted // total}%" if total else NONE
    row = [one_line(group.name), str(group.pods), str(group.gpus), str(group.granted), str(total)]
    return [*row, percent, *([_gib(group.used_bytes)] if used else [])]


def _gib(amount: float | None) -> str:
    return NONE if amount is None else f"{amount / _GIB:.1f}"
