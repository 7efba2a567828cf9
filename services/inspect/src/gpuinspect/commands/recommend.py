"""``gpushare recommend``: the size that shares should have, from the memory that was measured."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Final, NoReturn

import typer

from gpucore.accounting.node_info import gpu_sizes
from gpucore.sizing.evidence import SizingRules
from gpucore.sizing.recommendation import Recommendation
from gpucore.units import MemoryUnit, UnitError
from gpuinspect.cluster.schedulers import policy_of
from gpuinspect.cluster.scoped import NO_CLAIMS, gaps
from gpuinspect.cluster.usage_histories import HistorySource, ReadHistories, of_file
from gpuinspect.commands.options import answers
from gpuinspect.commands.options.amounts import days_of, finite, margin_of, price_option
from gpuinspect.commands.options.formats import NoHeaders
from gpuinspect.commands.options.kinds import kind_of
from gpuinspect.commands.options.namespaces import (
    DEFAULT,
    READ_ALL,
    AllNamespaces,
    Namespace,
    chosen,
    named_namespace,
)
from gpuinspect.commands.options.reading import Reader, fail, note, note_all, reading
from gpuinspect.commands.recommended import RecommendFormat, Shown, print_effect, print_sizes
from gpuinspect.layout.recommend import source_notes
from gpuinspect.queries.claim_sizes import ClaimSize, MeasuredWorkload, claim_sizes
from gpuinspect.queries.measured import (
    NO_HISTORY,
    MeasuredCluster,
    measured,
    no_series,
    of_prometheus,
    unread_note,
)
from gpuinspect.queries.recommend import (
    RecommendScope,
    recommendations,
    unit_in,
    units_in,
)
from gpuinspect.queries.repacked import sizes_effect
from gpuinspect.terminal import ages
from gpukube.plugins import RIGHT

NO_NODES: Final = (
    "the nodes were not read, so an exclusive GPU looks like a share, and sizes may exceed the"
    " largest GPU"
)
DOCTOR: Final = "'gpushare doctor' checks the plugins"


@reading
def recommend(
    reader: Reader,
    workload: Annotated[
        str,
        typer.Argument(
            help="only this workload, as NAME or KIND/NAME; default: all of the namespace",
            autocompletion=answers.workloads,
        ),
    ] = "",
    *,
    namespace: Namespace = "",
    all_namespaces: AllNamespaces = False,
    window: Annotated[
        str,
        typer.Option(
            help="leave out workloads that did not run in this time: a number of hours, days or"
            " weeks, such as 12h, 7d or 4w; of the others everything that was measured counts, and"
            " of Prometheus what was measured in this time",
            metavar="TIME",
        ),
    ] = "7d",
    percentile: Annotated[
        float,
        typer.Option(
            help="percentage of the samples that the request covers where a burst limit covers"
            " the peak",
            min=1.0,
            max=100.0,
            callback=finite,
        ),
    ] = 95.0,
    margin: Annotated[
        str, typer.Option(help="percentage added to what was measured", metavar="PERCENT")
    ] = "15%",
    history: Annotated[
        Path | None,
        typer.Option(
            help="read what was measured from this file, with one answer of a device plugin at"
            " /usage-history on each line",
            metavar="FILE",
        ),
    ] = None,
    memory_unit: Annotated[
        str,
        typer.Option(
            help="unit of requests: GiB, MiB or a multiple; default: that of the nodes, or GiB"
            " where none are read; -o patch and --whatif take no other than that of the nodes",
            metavar="UNIT",
        ),
    ] = "",
    prometheus: Annotated[
        str,
        typer.Option(
            envvar="GPUSHARE_PROMETHEUS",
            help="read what was measured from the Prometheus at this address, over the time of"
            " --window; --history has precedence; default: the device plugins report it",
            metavar="URL",
        ),
    ] = "",
    whatif: Annotated[
        bool,
        typer.Option(
            "--whatif",
            help="show what the recommended sizes would free: the pods of the cluster placed anew",
        ),
    ] = False,
    price: Annotated[
        float,
        price_option("price of an hour of one GPU for --whatif, in any currency"),
    ] = 0.0,
    output: Annotated[
        RecommendFormat,
        typer.Option(
            "-o",
            "--output",
            help="output format; patch: one kubectl patch command for each workload",
        ),
    ] = RecommendFormat.TABLE,
    no_headers: NoHeaders = False,
) -> None:
    """Recommend request and burst limit of each workload from the GPU memory that it used.

    The limit covers the highest peak, that of starts included, with the margin. Nothing is changed.
    """
    days, percent = days_of(window, "--window"), margin_of(margin)
    if whatif and output is RecommendFormat.PATCH:
        raise typer.BadParameter("--whatif has no patches: use -o patch without it")
    if price and not whatif:
        raise typer.BadParameter("--price needs --whatif")
    where = _where(reader, namespace, history, everywhere=all_namespaces)
    kind, name = _workload_of(workload)
    known = of_file(history, ages.now().timestamp()) if history is not None else None
    if known is None and prometheus:
        seconds = reader.source.timeout_seconds
        known = of_prometheus(prometheus, namespace=where, days=days, seconds=seconds)
    source = measured(reader.source, reader.names, known, pods=whatif)
    unit = _unit(memory_unit, source)
    if whatif or output is RecommendFormat.PATCH:
        _demand_unit_of_nodes(unit, source)
    rules = SizingRules(
        percentile=percentile, margin=percent, gpu_sizes=gpu_sizes(source.node_infos, unit)
    )
    if not source.histories.items:
        _fail_without_histories(source.histories, where, window)
    scope = RecommendScope(where, kind, name, days, ages.now().timestamp())
    found = recommendations(source.histories.items, scope, unit, rules)
    claims = _claims(reader, found, source.histories) if output is RecommendFormat.PATCH else {}
    shown = Shown(found, str(unit), rules, _gaps(source, unit), source.histories, claims)
    if whatif and source.snapshot is not None:
        effect = sizes_effect(source.snapshot, found, reader.names, policy_of(source.snapshot, ""))
        unread = gaps(source.snapshot, NO_CLAIMS)
        notes = [*source_notes(source.histories, window), *shown.gaps, *unread]
        print_effect(effect, price, output, notes, headers=not no_headers)
        return
    print_sizes(shown, output, reader.names, everywhere=not where, headers=not no_headers)
    if not output.is_document:
        note_all(source_notes(source.histories, window))
    if not found:
        note(f"no workload of {_scope(where)} used a share in {window}; {READ_ALL}")


def _where(reader: Reader, namespace: str, history: Path | None, *, everywhere: bool) -> str:
    """A file has no context: its namespace is the default one, as that of a snapshot."""
    named = named_namespace(namespace, everywhere=everywhere)
    if named or everywhere:
        return named
    return DEFAULT if history is not None else chosen(reader.source, "")


def _workload_of(text: str) -> tuple[str, str]:
    """Kind in lower case, empty for any, and name."""
    word, slash, name = text.partition("/")
    if not slash:
        return "", text
    kind = kind_of(word) or word.lower()
    if not (kind and name):
        raise typer.BadParameter(f"{text!r} is not NAME or KIND/NAME, such as deploy/web")
    return kind, name


def _unit(text: str, source: MeasuredCluster) -> MemoryUnit:
    try:
        return MemoryUnit.parse(text) if text else unit_in(source.node_infos)
    except UnitError as error:
        raise typer.BadParameter(f"--memory-unit: {error}") from error


def _demand_unit_of_nodes(unit: MemoryUnit, source: MeasuredCluster) -> None:
    """Patches and what-if count as the nodes do: in another unit, each size would be wrong."""
    units = units_in(source.node_infos)
    if len(units) > 1:
        fail(
            f"{_different(units)}, and a size has one number for all nodes: -o patch and --whatif"
            " need the same unit on every node"
        )
    if units and unit not in units:
        raise typer.BadParameter(
            f"--memory-unit {unit}: the nodes count in {units[0]}, and so do -o patch and --whatif:"
            " leave it out"
        )


def _different(units: Sequence[MemoryUnit]) -> str:
    return f"the nodes count GPU memory in different units ({', '.join(map(str, units))})"


def _claims(
    reader: Reader, found: Sequence[Recommendation], histories: ReadHistories
) -> Mapping[MeasuredWorkload, ClaimSize | str]:
    """What to change of workloads whose memory is claimed; nothing is read without a cluster."""
    offline = reader.source.snapshot is not None or histories.source is HistorySource.FILE
    if offline or not any(each.claims for each in found):
        return {}
    with reader.source.connect() as kube:
        return claim_sizes(kube, found)


def _gaps(source: MeasuredCluster, unit: MemoryUnit) -> list[str]:
    """What could not be read, or is not the same on all nodes, and what follows."""
    units = units_in(source.node_infos)
    sizes = f"{_different(units)}: all sizes here are in {unit}" if len(units) > 1 else ""
    no_nodes = "" if source.node_infos else NO_NODES
    return [each for each in (unread_note(source.histories), no_nodes, sizes) if each]


def _fail_without_histories(histories: ReadHistories, where: str, window: str) -> NoReturn:
    if histories.source is HistorySource.PROMETHEUS:
        fail(no_series(_scope(where), window))
    if histories.forbidden:
        fail(f"no memory was read: {RIGHT.format(histories.forbidden)}; or give --prometheus URL")
    fail("; ".join(filter(None, [NO_HISTORY, unread_note(histories), DOCTOR])))


def _scope(where: str) -> str:
    return f"namespace {where}" if where else "any namespace"
