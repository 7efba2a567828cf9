"""``gpushare pending``: every pod that waits for GPUs, with the reason and since when."""

import sys
from collections.abc import Iterable
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Final

import typer

from gpuinspect.cluster.schedulers import placing_gaps, placing_lists
from gpuinspect.cluster.scoped import REASONS, read
from gpuinspect.commands.options.formats import Format, NoHeaders, Output, emit, names_only
from gpuinspect.commands.options.namespaces import READ_ALL, AllNamespaces, Namespace, chosen
from gpuinspect.commands.options.reading import Reader, note, note_all, reading
from gpuinspect.documents.pending import pending_pod_list
from gpuinspect.queries.scheduling_status import SchedulingStatus, SchedulingStatuses, oldest_first
from gpuinspect.terminal import ages
from gpuinspect.terminal.ages import age
from gpuinspect.terminal.output import one_line, table

_HEADS: Final = ("NAMESPACE", "NAME", "AGE", "REQUESTS")
_WIDE: Final = ("STATE", "SCHEDULER", "SINCE")


class PendingOrder(StrEnum):
    """Values of ``--sort-by``."""

    AGE = "age"
    NAME = "name"
    REASON = "reason"


@reading
def pending(
    reader: Reader,
    *,
    namespace: Namespace = "",
    all_namespaces: AllNamespaces = False,
    sort_by: Annotated[PendingOrder, typer.Option(help="order of the lines; age: oldest first")] = (
        PendingOrder.AGE
    ),
    output: Output = Format.TABLE,
    no_headers: NoHeaders = False,
) -> None:
    """List the pods that wait for GPUs, with the reason of each and how long it has waited."""
    where = chosen(reader.source, namespace, everywhere=all_namespaces)
    snapshot = read(reader.source, where, *placing_lists(where))
    statuses = SchedulingStatuses(snapshot, reader.names).in_namespace(where)
    waiting = _sorted([each for each in statuses if each.waits], sort_by)
    unread = list(placing_gaps(snapshot, REASONS))
    if output.is_document:
        emit(pending_pod_list(waiting, namespace=where, gaps=unread), output)
        return
    if output is Format.NAME:
        names_only("pod", (each.pod.name for each in waiting))
    elif waiting:
        wide = output is Format.WIDE
        sys.stdout.write(_table(waiting, ages.now(), wide=wide, headers=not no_headers))
    else:
        place = f"namespace {where}; {READ_ALL}" if where else "any namespace"
        note(f"no pod waits for GPUs in {place}")
    note_all(unread)


def _sorted(waiting: list[SchedulingStatus], order: PendingOrder) -> list[SchedulingStatus]:
    found = oldest_first(waiting)
    if order is PendingOrder.NAME:
        found.sort(key=lambda each: (each.pod.namespace, each.pod.name))
    elif order is PendingOrder.REASON:
        found.sort(key=lambda each: each.reason)
    return found


def _table(
    waiting: Iterable[SchedulingStatus], at: datetime, *, wide: bool = False, headers: bool = True
) -> str:
    """One line a pod; ``wide`` adds its state, its scheduler and the time of its creation."""
    heads = (*_HEADS, *(_WIDE if wide else ()), "REASON")
    return table(heads, (_row(each, at, wide=wide) for each in waiting), headers=headers)


def _row(status: SchedulingStatus, at: datetime, *, wide: bool) -> tuple[str, ...]:
    pod = status.pod
    more = (status.state.label, pod.scheduler_name or "-", pod.creation or "-") if wide else ()
    first = (pod.namespace, pod.name, age(pod.creation, at), status.found.request_summary)
    return (*first, *more, one_line(status.reason))
