"""``gpushare cost``: GPU-hours and their cost by namespace, from Prometheus."""

import re
import sys
from collections.abc import Mapping
from typing import Annotated, Final

import typer

from gpuinspect.commands.options.formats import Format, Output, emit, names_only
from gpuinspect.commands.options.reading import fail, note
from gpuinspect.documents.cost import cost_list
from gpuinspect.errors import PrometheusError
from gpuinspect.sources.prometheus import gpu_hours
from gpuinspect.terminal.tables import align

SINCE: Final = re.compile(r"^[1-9][0-9]{0,4}[hdw]$")
NO_HISTORY: Final = (
    "no history: the API server stores only pods that exist. Give --prometheus URL of a Prometheus"
    " with the recording rules (chart value monitoring.recordingRules.enabled)"
)
NO_RULES: Final = (
    "Prometheus has no series namespace:gpushare_granted_gpus:sum in that time: install the"
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
    price: Annotated[
        float, typer.Option(help="price of an hour of one GPU, in any currency", min=0.0)
    ] = 0.0,
    prometheus: Annotated[
        str,
        typer.Option(envvar="GPUSHARE_PROMETHEUS", help="URL of Prometheus", metavar="URL"),
    ] = "",
    output: Output = Format.TABLE,
) -> None:
    """Print the GPU-hours that were granted and used in each namespace, and what they cost.

    The cost is that of the granted hours: a share that is granted is kept from others, used or not.
    """
    if not SINCE.match(since):
        raise typer.BadParameter("--since takes a number with h, d or w, such as 12h, 7d or 4w")
    if not prometheus:
        fail(NO_HISTORY)
    try:
        granted = gpu_hours(prometheus, "namespace:gpushare_granted_gpus:sum", since)
        used = gpu_hours(prometheus, "namespace:gpushare_used_gpus:sum", since)
    except PrometheusError as error:
        fail(error)
    if not granted:
        fail(NO_RULES)
    if output.is_document:
        emit(cost_list(granted, used, since=since, price=price), output)
        return
    if output is Format.NAME:
        names_only("namespace", sorted(granted))
        return
    _table(granted, used, price)
    if not price:
        note("note: --price sets the price of an hour of one GPU")
    if not used:
        note("note: no hours are known as used: set devicePlugin.hostProcesses in the chart")


def _table(granted: Mapping[str, float], used: Mapping[str, float], price: float) -> None:
    rows = ["NAMESPACE\tGRANTED GPU-HOURS\tUSED GPU-HOURS\tCOST\n"]
    for name, hours in [*sorted(granted.items()), ("total", sum(granted.values()))]:
        own = used.get(name, sum(used.values()) if name == "total" and used else None)
        shown = "-" if own is None else f"{own:.1f}"
        rows.append(f"{name}\t{hours:.1f}\t{shown}\t{hours * price:.2f}\n")
    sys.stdout.write(align("".join(rows)))
