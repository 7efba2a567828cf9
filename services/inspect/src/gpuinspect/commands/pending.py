"""``gpushare pending``: every pod that waits for GPUs, with the reason and since when."""

import sys
from enum import StrEnum
from typing import Annotated

import typer

from gpuinspect.cluster.collect import COUNTED
from gpuinspect.cluster.schedulers import SCHEDULER_CONFIGS, WEBHOOKS
from gpuinspect.cluster.scoped import REASONS, gaps, read
from gpuinspect.commands.options.formats import Format, NoHeaders, Output, emit, names_only
from gpuinspect.commands.options.namespaces import READ_ALL, AllNamespaces, Namespace, chosen
from gpuinspect.commands.options.reading import Reader, note, reading
from gpuinspect.documents.pending import pending_pod_list
from gpuinspect.layout.pending import pending as table
from gpuinspect.queries.claims import DEVICE_CLASSES, claim_templates
from gpuinspect.queries.scheduling_status import SchedulingStatus, SchedulingStatuses, oldest_first
from gpuinspect.terminal import ages


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
    claims = (DEVICE_CLASSES, claim_templates(where))
    snapshot = read(reader.source, where, *COUNTED, *claims, SCHEDULER_CONFIGS, WEBHOOKS)
    statuses = SchedulingStatuses(snapshot, reader.names).in_namespace(where)
    waiting = _sorted([each for each in statuses if each.waits], sort_by)
    unread = list(gaps(snapshot, REASONS))
    if output.is_document:
        emit(pending_pod_list(waiting, namespace=where, gaps=unread), output)
        return
    if output is Format.NAME:
        names_only("pod", (each.pod.name for each in waiting))
    elif waiting:
        wide = output is Format.WIDE
        sys.stdout.write(table(waiting, ages.now(), wide=wide, headers=not no_headers))
        sys.stdout.flush()
    else:
        place = f"namespace {where}; {READ_ALL}" if where else "any namespace"
        note(f"no pod waits for GPUs in {place}")
    for sentence in unread:
        note(f"note: {sentence}")


def _sorted(waiting: list[SchedulingStatus], order: PendingOrder) -> list[SchedulingStatus]:
    found = oldest_first(waiting)
    if order is PendingOrder.NAME:
        found.sort(key=lambda each: (each.pod.namespace, each.pod.name))
    elif order is PendingOrder.REASON:
        found.sort(key=lambda each: each.reason)
    return found
