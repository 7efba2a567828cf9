"""``gpushare idle``: pods that hold GPUs and have not used them for some time."""

import sys
from typing import Annotated

import typer

from gpucore.sizing.idle_eviction import IdleRules
from gpucore.units import counted
from gpucore.wire.names import IDLE_ALLOWED
from gpuinspect.cluster.collect import CLAIM_LISTS
from gpuinspect.cluster.scoped import gaps, read
from gpuinspect.commands.options import selecting
from gpuinspect.commands.options.amounts import Price, days_of
from gpuinspect.commands.options.formats import Format, NoHeaders, Output, emit, names_only
from gpuinspect.commands.options.namespaces import READ_ALL, AllNamespaces, Namespace, chosen
from gpuinspect.commands.options.reading import Reader, fail, note, note_all, reading
from gpuinspect.commands.options.selecting import Selector, selected
from gpuinspect.documents.idle import idle_eviction, idle_share_list
from gpuinspect.idle.outcomes import IdleOutcome
from gpuinspect.idle.reading import IdleSelection
from gpuinspect.idle.run import IdleEviction, run_eviction
from gpuinspect.layout.idle import idle as table
from gpuinspect.layout.idle import idle_eviction as eviction_table
from gpuinspect.queries.idle import IdleShares, idle_shares
from gpuinspect.terminal import ages

_DAY = 86400.0
NO_NODES = {"Node": "idle shares need the nodes, which cannot be read"}
NO_SNAPSHOT = "a snapshot does not have memory in use: run it without --snapshot"


@reading
def idle(
    reader: Reader,
    *,
    namespace: Namespace = "",
    all_namespaces: AllNamespaces = False,
    idle_for: Annotated[
        str,
        typer.Option(
            "--for",
            help="least time without memory in use, or without work: a number of hours, days or"
            " weeks, such as 12h, 7d or 4w",
            metavar="TIME",
        ),
    ] = "1h",
    price: Price = 0.0,
    evict: Annotated[
        bool,
        typer.Option(
            "--evict", help="give notice to idle pods, and evict those whose grace time is over"
        ),
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="show what --evict would do, and change nothing")
    ] = False,
    grace: Annotated[
        str,
        typer.Option(
            help="with --evict: least time from the notice to the eviction, such as 12h, 7d or 4w",
            metavar="TIME",
        ),
    ] = "24h",
    bare_pods: Annotated[
        bool,
        typer.Option(
            "--bare-pods", help="with --evict: also pods that no controller would create again"
        ),
    ] = False,
    max_evictions: Annotated[
        int, typer.Option(help="with --evict: maximum number of evictions of this run", min=0)
    ] = 10,
    max_notices: Annotated[
        int, typer.Option(help="with --evict: maximum number of notices of this run", min=0)
    ] = 50,
    plugin_namespace: Annotated[
        str,
        typer.Option(
            help="with --evict, required: namespace of the device plugins, that of the chart's"
            " release; pods elsewhere that look like a plugin do not count",
            metavar="NAME",
        ),
    ] = "",
    lease: Annotated[
        str,
        typer.Option(
            help="with --evict: Lease that excludes concurrent runs", metavar="NAMESPACE/NAME"
        ),
    ] = "kube-system/gpushare-idle",
    selector: Selector = "",
    output: Output = Format.TABLE,
    no_headers: NoHeaders = False,
) -> None:
    """List pods that hold GPUs and have not used them for some time, longest first.

    They have no memory in use, and so no CUDA context, or they have it in use (column USED) and run
    no work, as far as the driver reports utilization by process. The device plugins measure this; a
    restarted plugin begins anew. Pods with the label gpushare/idle-allowed=true are left out.
    Nothing is changed without --evict: that gives notice to pods without memory in use by an event
    and an annotation, and a later run evicts those that are still idle when their grace time is
    over. Exit code 1 if a run with --evict ended early.
    """
    seconds = days_of(idle_for, "--for") * _DAY
    if reader.source.snapshot is not None:
        fail(NO_SNAPSHOT)
    where = chosen(reader.source, namespace, everywhere=all_namespaces)
    if evict or dry_run:
        rules = IdleRules(seconds, days_of(grace, "--grace") * _DAY, bare_pods)
        selection = _selection(where, plugin_namespace, selector)
        wanted = IdleEviction(
            rules, max_notices, max_evictions, selection, lease, apply=not dry_run
        )
        _evict(reader, wanted, output, headers=not no_headers)
        return
    snapshot = selected(read(reader.source, "", *CLAIM_LISTS), selector)
    unread = list(gaps(snapshot, NO_NODES))
    if unread:
        fail(*unread)
    at = ages.now()
    with reader.source.connect() as kube:
        found = idle_shares(kube, snapshot, reader.names, namespace=where, seconds=seconds, at=at)
    notes = _notes(found, where, idle_for)
    if output.is_document:
        emit(idle_share_list(found, namespace=where, price=price, gaps=notes), output)
        return
    if output is Format.NAME:
        names_only("pod", (share.name for share in found.shares))
    elif found.shares:
        wide = output is Format.WIDE
        text = table(found, at, price=price, wide=wide, headers=not no_headers)
        sys.stdout.write(text)
    note_all(notes)


def _selection(where: str, plugin_namespace: str, selector: str) -> IdleSelection:
    """Which pods are meant."""
    if not plugin_namespace:
        raise typer.BadParameter(
            "--plugin-namespace is needed: whoever may create pods elsewhere could report that"
            " pods of others are idle"
        )
    try:
        return IdleSelection(where, plugin_namespace, selecting.parse(selector))
    except selecting.SelectorError as error:
        fail(error)


def _evict(reader: Reader, wanted: IdleEviction, output: Format, *, headers: bool) -> None:
    """One run, and what it did; exit code 1 where it ended early."""
    run = run_eviction(reader.source, reader.names, wanted, ages.now)
    if output.is_document:
        emit(idle_eviction(run, namespace=wanted.selection.namespace, at=ages.now()), output)
    elif output is Format.NAME:
        evicted = (each.pod.name for each in run.outcomes if each.outcome is IdleOutcome.EVICTED)
        names_only("pod", evicted)
    else:
        sys.stdout.write(eviction_table(run, ages.now(), headers=headers))
    if run.note and not output.is_document:
        note(f"note: {run.note}")
    if run.stopped:
        fail(run.stopped)


def _notes(found: IdleShares, where: str, idle_for: str) -> list[str]:
    """What the table does not show, and why."""
    place = f"namespace {where}; {READ_ALL}" if where else "any namespace"
    found_none = [] if found.shares else [f"no share was idle for {idle_for} in {place}"]
    allowed = [f"{counted(found.allowed, 'pod')} with the label {IDLE_ALLOWED}=true left out"]
    use = "uses" if found.unknown == 1 else "use"
    unknown = [f"it is not known whether {counted(found.unknown, 'pod')} {use} memory"]
    return [
        *found_none,
        *(allowed if found.allowed else ()),
        *(unknown if found.unknown else ()),
        *([found.note] if found.note else ()),
    ]
