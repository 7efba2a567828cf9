"""``gpushare usage``: GPU memory allocated, limited, used and pending, in groups."""

import sys
from collections.abc import Callable
from enum import StrEnum
from typing import Annotated, Final

import msgspec
import typer

from gpucore.units import GIB_BYTES
from gpuinspect.cluster.claims import DEVICE_CLASSES, claim_templates
from gpuinspect.cluster.collect import COUNTED, ListRequest
from gpuinspect.cluster.scoped import NO_CLAIMS, gaps, is_partial, read
from gpuinspect.commands.options import answers
from gpuinspect.commands.options.formats import Format, NoHeaders, Output, emit, names_only
from gpuinspect.commands.options.measuring import Prometheus, measured
from gpuinspect.commands.options.namespaces import READ_ALL, AllNamespaces, Namespace, chosen
from gpuinspect.commands.options.reading import Reader, fail, note, note_all, reading
from gpuinspect.commands.options.selecting import Selector, selected
from gpuinspect.documents.usage import usage_list
from gpuinspect.queries.memory_in_use import NO_PLUGIN, NO_PODS, MemoryInUse
from gpuinspect.queries.usage import LABEL, GroupUsage, UsageReport, grouped
from gpuinspect.terminal.output import one_line, table

LIMITED: Final = "NAMESPACE"
"""Title of the groups that have quotas."""
NONE: Final = "-"


_NO_NODES: Final = {
    "Node": "nodes cannot be read, so amounts are in the units that pods request",
    **NO_CLAIMS,
}
_FOLLOWS: Final = {
    **_NO_NODES,
    "ResourceQuota": "limits are not shown, since resource quotas cannot be read",
}
DOCTOR: Final = "(see 'gpushare doctor')"
BY: Final = ("namespace", "node", "model", "label:KEY")


class UsageOrder(StrEnum):
    """Values of ``--sort-by``."""

    NAME = "name"
    ALLOCATED = "allocated"
    USED = "used"
    PENDING = "pending"


@reading
def usage(
    reader: Reader,
    *,
    by: Annotated[
        str,
        typer.Option(
            help=f"groups: {', '.join(BY)}",
            metavar="GROUPS",
            autocompletion=answers.one_of((*BY[:3], LABEL)),
        ),
    ] = "namespace",
    namespace: Namespace = "",
    all_namespaces: AllNamespaces = False,
    prometheus: Prometheus = "",
    sort_by: Annotated[
        UsageOrder, typer.Option(help="order of the lines; amounts: largest first")
    ] = UsageOrder.NAME,
    selector: Selector = "",
    output: Output = Format.TABLE,
    no_headers: NoHeaders = False,
) -> None:
    """Show GPU memory allocated, limited, used and pending, by namespace, label, model or node."""
    _check(by)
    of_nodes = by in {"node", "model"}
    if selector and not of_nodes:
        raise typer.BadParameter("--selector selects nodes: it needs --by node or --by model")
    where = "" if of_nodes else chosen(reader.source, namespace, everywhere=all_namespaces)
    claims = (DEVICE_CLASSES, claim_templates(where))
    found = read(reader.source, where, *COUNTED, *claims, _quotas(where))
    snapshot = selected(found, selector)
    live = reader.source.snapshot is None
    in_use = measured(reader, found, prometheus) if prometheus or live else MemoryInUse()
    used = bool(prometheus) or (live and in_use.note not in {NO_PLUGIN, NO_PODS})
    report = _sorted(grouped(snapshot, reader.names, by, in_use.known, namespace=where), sort_by)
    if of_nodes and is_partial(snapshot):
        fail(*gaps(snapshot, {"Node": f"--by {by} needs the nodes, which cannot be read"}))
    unread = list(gaps(snapshot, _FOLLOWS if by == "namespace" else _NO_NODES))
    unread += [in_use.note] if in_use.note not in {"", NO_PLUGIN} else []
    if output.is_document:
        emit(usage_list(report, by, gaps=unread), output)
        return
    if output is Format.NAME:
        names_only(by.removeprefix(LABEL), (group.name for group in report.groups))
    elif report.groups:
        draw, title = of_gpus if of_nodes else of_pods, by.removeprefix(LABEL).upper()
        sys.stdout.write(draw(report, title, used=used, headers=not no_headers))
    else:
        known = "Node" not in snapshot.missing
        note(_nothing(where, nodes=not known or bool(report.unit), of_nodes=of_nodes))
    note_all((*report.notes, *unread))


def _nothing(where: str, *, nodes: bool, of_nodes: bool) -> str:
    """What was read and holds no group.

    Args:
        where: the namespace; empty for all.
        nodes: nodes have GPUs, or cannot be read.
        of_nodes: the groups are of nodes.
    """
    if of_nodes:
        return f"no node has GPUs {DOCTOR}"
    none = f"no pod of {f'namespace {where}' if where else 'any namespace'} requests GPUs"
    if not nodes:
        return f"{none}, and no node has any {DOCTOR}"
    return f"{none}; {READ_ALL if where else '--by node shows the nodes'}"


def _check(by: str) -> None:
    if by not in BY[:3] and not by.removeprefix(LABEL) != by:
        raise typer.BadParameter(f"{by!r} is none of {', '.join(BY)}")
    if by == LABEL:
        raise typer.BadParameter("label: needs the key of a label, such as label:team")


def _sorted(report: UsageReport, order: UsageOrder) -> UsageReport:
    keys: dict[UsageOrder, Callable[..., float]] = {
        UsageOrder.ALLOCATED: lambda group: -group.allocated,
        UsageOrder.USED: lambda group: -(group.used_bytes or 0),
        UsageOrder.PENDING: lambda group: -group.pending - group.pending_gpus,
    }
    if order not in keys:
        return report
    groups = tuple(sorted(report.groups, key=keys[order]))
    return msgspec.structs.replace(report, groups=groups)


def _quotas(namespace: str) -> ListRequest:
    inside = f"namespaces/{namespace}/" if namespace else ""
    return ListRequest("ResourceQuota", f"/api/v1/{inside}resourcequotas")


def of_pods(report: UsageReport, title: str, *, used: bool, headers: bool = True) -> str:
    """One line a namespace or label; ``used`` adds memory in use."""
    unit = f"({report.unit or 'units'})"
    heads = [title, "PODS", f"ALLOCATED{unit}", "EXCLUSIVE GPUS"]
    heads += [f"LIMIT{unit}"] if title == LIMITED else []
    heads += ["USED(GiB)"] if used else []
    heads += ["PENDING PODS", f"PENDING{unit}", "PENDING GPUS"]
    rows = (_pods(group, used=used, limits=title == LIMITED) for group in report.groups)
    return table(heads, rows, headers=headers)


def of_gpus(report: UsageReport, title: str, *, used: bool, headers: bool = True) -> str:
    """One line a node or model; ``used`` adds memory in use."""
    heads = [
        title,
        "PODS",
        "GPUS",
        f"ALLOCATED({report.unit})",
        f"TOTAL({report.unit})",
        "ALLOCATED%",
    ]
    heads += ["USED(GiB)"] if used else []
    return table(heads, (_gpus(group, used=used) for group in report.groups), headers=headers)


def _pods(group: GroupUsage, *, used: bool, limits: bool) -> list[str]:
    allocated = _units(group.allocated, group.allocated_unknown_unit)
    pending = _units(group.pending, group.pending_unknown_unit)
    row = [one_line(group.name), str(group.pods), allocated, str(group.gpus)]
    row += [NONE if group.limit is None else str(group.limit)] if limits else []
    row += [_used(group)] if used else []
    return [*row, str(group.pending_pods), pending, str(group.pending_gpus)]


def _units(known: int, unknown: int) -> str:
    return NONE if unknown and not known else str(known)


def _gpus(group: GroupUsage, *, used: bool) -> list[str]:
    total = group.total or 0
    percent = f"{100 * group.allocated // total}%" if total else NONE
    row = [one_line(group.name), str(group.pods), str(group.gpus), str(group.allocated), str(total)]
    return [*row, percent, *([_used(group)] if used else [])]


def _used(group: GroupUsage) -> str:
    """GiB in use, at least those where some pods or GPUs have no figure."""
    if group.used_bytes is None:
        return NONE
    return f"{'>=' if group.used_unknown else ''}{group.used_bytes / GIB_BYTES:.1f}"
