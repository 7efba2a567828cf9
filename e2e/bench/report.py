"""The page ``docs/benchmarks-extender.md``: figures beside their bars, and where the time goes."""

from collections.abc import Mapping, Sequence
from typing import Any

from bench import bars

_RANGE = """\
Kubernetes {kubernetes} (API server, kube-scheduler) on {machine}. Measured at commit {code};
changes after that commit are not in these figures."""

_ABOUT = """\
{nodes} nodes x {gpus} GPUs, {pods} running pods with shares, {runs} runs of each figure: the
median, with the lowest and the highest run. Benchmark, API server, etcd and scheduler share the
machine with the extender, so absolute rates are those of this machine only: compare the ratios. The
running pods hold shares of different sizes, so that nodes differ. Every filter call is for another
pod with another amount and another range of node names; prioritize gets the names that filter
returned, as kube-scheduler sends them. Runs with and without the extender alternate. `make bench`
writes this page; all figures are in [benchmarks/extender.json](benchmarks/extender.json)."""

_TWO_WRITES = """\
*Two writes* is what the original extender does for each pod: a PATCH of the pod and a POST of its
Binding, here sent straight to the API server by the benchmark, without an extender. The benchmark's
general HTTP client is part of that cost, so the ratio would be lower with a leaner client."""

_ALONE = """\
*Scheduler alone* is kube-scheduler without an extender in its configuration. The extender's process
is still running then and watches the pods; the CPU ratio above leaves that part out."""

_COLUMNS = {"rig": "benchmark"}
"""Processes whose name in the figures needs another word on the page."""


def page(figures: Mapping[str, Any]) -> str:
    """The page."""
    lines = ["# Extender on a real API server", "", _RANGE.format(**figures), ""]
    lines += [_ABOUT.format(**figures), ""]
    for subject in figures["subjects"]:
        lines += [f"## {subject['name']}", "", *_bars(subject)]
        lines += [*_latencies(subject), *_binds(subject), *_end_to_end(subject)]
    return "\n".join([*lines, *_loads(figures["load_average"])])


def _bars(subject: Mapping[str, Any]) -> list[str]:
    rows = [result.row for result in bars.results(subject)]
    table = ["| figure | median | bar | |", "|---|---|---|---|", *rows, ""]
    meanings = [f"- **{what}**: {meaning}." for what, meaning in bars.MEANINGS]
    return [*table, "What each bar is:", "", *meanings, ""]


def _latencies(subject: Mapping[str, Any]) -> list[str]:
    lines = [
        "### Calls",
        "",
        "| endpoint | node names | p50 ms | p99 ms | slowest ms |",
        "|---|---|---|---|---|",
    ]
    for verb, series in subject["latency_ms"].items():
        for names, at in series.items():
            cells = (verb, names, _range(at["p50"]), _range(at["p99"]), f"{at['max']:g}")
            lines.append(f"| {' | '.join(cells)} |")
    lines.append("")
    for verb in subject["latency_ms"]:
        picture = f"benchmarks/{verb}-{subject['name']}.svg"
        lines.append(f"![Distribution of {verb} calls]({picture})")
    return [*lines, ""]


def _binds(subject: Mapping[str, Any]) -> list[str]:
    series = {}
    for connections, found in subject["binds"].items():
        series[connections] = found
        series[f"{connections}, two writes"] = found["two_writes"]
    return ["### Binds", "", *_rates("connections", series), _TWO_WRITES, ""]


def _end_to_end(subject: Mapping[str, Any]) -> list[str]:
    series = {}
    for nodes, found in subject["end_to_end"].items():
        series[f"{nodes}, scheduler alone"] = found["plain"]
        series[f"{nodes}, with extender"] = found["with"]
    lines = ["### Pods through kube-scheduler", "", *_rates("nodes", series), _ALONE, ""]
    return lines + _backlogs(subject.get("backlog", {}))


_BACKLOG = """\
The pods are pending before scheduler and extender start. Time and CPU run from their start to the
last bind."""


def _backlogs(found: Mapping[str, Any]) -> list[str]:
    """Rates of a backlog by number of nodes and row; nothing where none was measured."""
    series = {
        f"{nodes}, {row} ({rate['nodes']} nodes used)": rate
        for nodes, rows in found.items()
        for row, rate in rows.items()
    }
    return ["### A backlog", "", _BACKLOG, "", *_rates("nodes", series)] if series else []


def _rates(first: str, series: Mapping[str, Any]) -> list[str]:
    """Pods each second, and the CPU time of each process for one pod."""
    names = list(dict.fromkeys(name for rate in series.values() for name in rate["cpu_ms"]))
    columns = (_COLUMNS.get(name, name) for name in names)
    head = [first, "pods/s", *(f"{column}, CPU ms per pod" for column in columns)]
    lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    for key, rate in series.items():
        spent = [f"{rate['cpu_ms'][name]:g}" if name in rate["cpu_ms"] else "" for name in names]
        lines.append(f"| {' | '.join([key, _range(rate['per_second']), *spent])} |")
    return [*lines, ""]


def _loads(loads: Sequence[tuple[str, float]]) -> list[str]:
    rows = [f"| {part} | {load:g} |" for part, load in loads]
    table = ["| before this part | load average over one minute |", "|---|---|", *rows]
    return ["## Load of the machine", "", *table, ""]


def _range(figure: Mapping[str, float]) -> str:
    median, least, most = figure["median"], figure["min"], figure["max"]
    form = "{:.0f}" if median >= 100 else "{:.2f}"
    return f"{form} ({form} to {form})".format(median, least, most)
