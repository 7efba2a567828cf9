"""``gpushare cost``: GPU-hours and their cost by namespace, from Prometheus."""

import sys
from collections.abc import Mapping
from typing import Annotated, Final

import typer

from gpuinspect.cluster.collect import ClusterSource
from gpuinspect.commands.options.amounts import Price, days_of, seconds_option
from gpuinspect.commands.options.formats import Format, NoHeaders, Output, emit, names_only
from gpuinspect.commands.options.namespaces import READ_ALL, AllNamespaces, Namespace, chosen
from gpuinspect.commands.options.reading import Context, Kubeconfig, fail, note
from gpuinspect.documents.cost import cost_list
from gpuinspect.errors import PrometheusError
from gpuinspect.sources.prometheus import gpu_hours
from gpuinspect.terminal.output import table

ALLOCATED: Final = "namespace:gpushare_allocated_gpus:sum"
USED: Final = "namespace:gpushare_used_gpus:sum"
HEADS: Final = ("NAMESPACE", "ALLOCATED GPU-HOURS", "USED GPU-HOURS", "COST")
TOTAL: Final = "TOTAL"
"""Name of the last row; no namespace has capital letters."""
NO_HISTORY: Final = (
    "no history: the API server stores only pods that exist. Give --prometheus URL of a Prometheus"
    " with the recording rules (chart value monitoring.recordingRules.enabled)"
)
NO_RULES: Final = (
    f"Prometheus has no series {ALLOCATED} in that time: install the"
    " recording rules (chart value monitoring.recordingRules.enabled), or choose a longer --since"
)


def cost(
    *,
    since: Annotated[
        str,
        typer.Option(
            help="time to look back: a number of hours, days or weeks, such as 12h, 7d or 4w",
            metavar="TIME",
        ),
    ] = "7d",
    price: Price = 0.0,
    prometheus: Annotated[
        str,
        typer.Option(
            envvar="GPUSHARE_PROMETHEUS", help="URL of Prometheus, required", metavar="URL"
        ),
    ] = "",
    namespace: Namespace = "",
    all_namespaces: AllNamespaces = False,
    output: Output = Format.TABLE,
    no_headers: NoHeaders = False,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    request_timeout: Annotated[
        float,
        seconds_option("timeout of a request to Prometheus in seconds", metavar="SECONDS"),
    ] = 30.0,
) -> None:
    """Print the GPU-hours that were allocated and used in each namespace, and what they cost.

    The cost is that of the allocated hours: an allocated share is kept from others, used or not.
    """
    days_of(since, "--since")  # in the form that Prometheus takes too
    where = chosen(ClusterSource(kubeconfig, context), namespace, everywhere=all_namespaces)
    if not prometheus:
        fail(NO_HISTORY)
    every, in_use = _hours(prometheus, since, request_timeout)
    allocated, used = _only(every, where), _only(in_use, where)
    if output.is_document:
        emit(cost_list(allocated, used, since=since, price=price), output)
    elif output is Format.NAME:
        names_only("namespace", sorted(allocated.keys() | used.keys()))
    elif not allocated and not used:
        note(f"no GPU-hours were allocated in namespace {where} in {since}; {READ_ALL}")
    else:
        sys.stdout.write(_table(allocated, used, price, headers=not no_headers))
        if not price:
            note("note: --price sets the price of an hour of one GPU")
        if not in_use:
            note("note: no hours are known as used: set devicePlugin.hostProcesses in the chart")


def _hours(url: str, since: str, seconds: float) -> tuple[Mapping[str, float], Mapping[str, float]]:
    """Allocated hours by namespace, and used ones."""
    try:
        allocated = gpu_hours(url, ALLOCATED, since, seconds=seconds)
        used = gpu_hours(url, USED, since, seconds=seconds)
    except PrometheusError as error:
        fail(error)
    if not allocated:
        fail(NO_RULES)
    return allocated, used


def _only(hours: Mapping[str, float], namespace: str) -> Mapping[str, float]:
    """The hours of one namespace; an empty name is for all."""
    return {name: each for name, each in hours.items() if namespace in {"", name}}


def _table(
    allocated: Mapping[str, float], used: Mapping[str, float], price: float, *, headers: bool
) -> str:
    names = sorted(allocated.keys() | used.keys())
    rows = [_row(name, allocated.get(name, 0.0), used.get(name), price) for name in names]
    if len(names) > 1:
        in_use = sum(used.values()) if used else None
        rows.append(_row(TOTAL, sum(allocated.values()), in_use, price))
    return table(HEADS, rows, headers=headers)


def _row(name: str, hours: float, used: float | None, price: float) -> tuple[str, ...]:
    shown = "-" if used is None else f"{used:.1f}"
    return (name, f"{hours:.1f}", shown, f"{hours * price:.2f}")
