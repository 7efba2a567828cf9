"""The page ``docs/benchmarks-extender.md``: figures beside their bars, and where the time goes."""

from collections.abc import Mapping, Sequence
from typing import Any

from bench import bars

_RANGE = """\
Machine: {machine}. Measured at commit {code}; what changed since is not in these figures."""

_ABOUT = """\
{nodes} nodes x {cards} cards, {pods} pods known, {runs} runs of each figure: medians, with the
least and the greatest run. Client, API server, etcd and scheduler share the machine with the
extender: read ratios first. Pods that are known hold shares of different sizes, so that nodes
differ; every pod asks for another amount on another stretch of the names, and prioritize is asked
about what filter answered, as a scheduler does. Runs with and without the extender take turns.
`make bench` writes this page; figures are in
[benchmarks/extender.json](benchmarks/extender.json)."""

_TWICE = """\
*Two writes* is the original's PATCH and Binding of each pod, sent by the rig straight to the API
server with no extender in between. What its general client costs is in it, so an extender with a
leaner one may do better than this. Binds are so many times as fast: {} connections."""


def page(figures: Mapping[str, Any]) -> str:
    """The page."""
    lines = ["# Extender on a real API server", "", _RANGE.format(**figures), ""]
    lines += [_ABOUT.format(**figures), ""]
    for subject in figures["subjects"]:
        lines += [f"## {subject['name']}", ""]
        lines += [*_judged(subject), *_latencies(subject), *_binds(subject), *_end_to_end(subject)]
    return "\n".join([*lines, *_loads(figures["load_average"])])


def _judged(subject: Mapping[str, Any]) -> list[str]:
    rows = [judged.row for judged in bars.judge(subject)]
    return ["| figure | median | bar | |", "|---|---|---|---|", *rows, ""]


def _latencies(subject: Mapping[str, Any]) -> list[str]:
    lines = [
        "### Calls",
        "",
        "| verb | names | p50 ms | p99 ms | slowest ms |",
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
    series, told = {}, []
    for connections, found in subject["binds"].items():
        series[connections] = found
        series[f"{connections}, two writes"] = found["two_writes"]
        told.append(f"{found['times_two_writes']:g} over {connections}")
    return ["### Binds", "", *_rates("connections", series), _TWICE.format(", ".join(told)), ""]


def _end_to_end(subject: Mapping[str, Any]) -> list[str]:
    series = {}
    for nodes, found in subject["end_to_end"].items():
        series[f"{nodes}, scheduler alone"] = found["plain"]
        series[f"{nodes}, with extender"] = found["with"]
    return ["### Pods through kube-scheduler", "", *_rates("nodes", series)]


def _rates(first: str, series: Mapping[str, Any]) -> list[str]:
    """Rates, and what each process spends on one pod."""
    names = list(dict.fromkeys(name for rate in series.values() for name in rate["cpu_ms"]))
    head = [first, "a second", *(f"{name}, ms CPU" for name in names)]
    lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    for key, rate in series.items():
        spent = [f"{rate['cpu_ms'][name]:g}" if name in rate["cpu_ms"] else "" for name in names]
        lines.append(f"| {' | '.join([key, _range(rate['per_second']), *spent])} |")
    return [*lines, ""]


def _loads(loads: Sequence[tuple[str, float]]) -> list[str]:
    rows = [f"| {part} | {load:g} |" for part, load in loads]
    table = ["| before | load average of a minute |", "|---|---|", *rows]
    return ["## How busy the machine was", "", *table, ""]


def _range(figure: Mapping[str, float]) -> str:
    median, least, most = figure["median"], figure["min"], figure["max"]
    form = "{:.0f}" if median >= 100 else "{:.2f}"
    return f"{form} ({form} to {form})".format(median, least, most)
