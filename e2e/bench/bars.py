"""The bars of the extender: budgets for what it spends, ratios for what it does to the cluster.

A budget is a figure of its own: latency, start, memory. A rate reveals more about the machine than
about the extender, so its bar is a ratio to the same run without the extender, taken in turns on
the same machine: binds to two writes sent straight to the API server, pods and CPU to
kube-scheduler alone.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

LATENCY_MS: Final = {"500": 1.5, "5000": 5.0}
READY_SECONDS: Final = 5.0
RESIDENT_MIB: Final = 600.0
BINDINGS_PER_POD: Final = 1.0
TIMES_TWO_WRITES: Final = 1.3
SHARE_OF_PLAIN: Final = 0.8
FIVE_ORIGINALS: Final = {"1000": round(5 * 38 / 445, 3), "5000": round(5 * 34 / 350, 3)}
"""Five times the share of its scheduler's rate that the original extender left, by nodes."""
TIMES_CPU: Final = 1.25
"""The CPU at which a machine that is busy throughout keeps :data:`SHARE_OF_PLAIN` of its rate."""
NOT_WITHOUT: Final = frozenset({"extender"})
"""Runs in the comparison too, to watch pods; a cluster without the extender would be spared it."""
NOT_COUNTED: Final = frozenset({"rig"})
"""The benchmark itself."""

MEANINGS: Final = (
    ("filter p99, prioritize p99", "budget in ms: 99 of 100 calls take less"),
    (
        "binds over N connections / two writes",
        (
            "ratio: pods bound each second by the extender's `bind`, divided by pods bound each "
            "second by the two writes of the original extender, which the benchmark sends "
            "straight to the API server; 1 would be as fast as those"
        ),
    ),
    (
        "pods/s with extender / scheduler alone",
        (
            "ratio: pods bound each second by kube-scheduler with the extender, divided by pods "
            "bound each second by the same kube-scheduler alone. The first bar, 0.427 with 1,000 "
            "nodes and 0.486 with 5,000, is five times the share that the original extender left "
            "of its scheduler's rate (38 of 445 and 34 of 350 pods/s, kube-scheduler 1.36, "
            "another machine); the second, 0.8, is the goal"
        ),
    ),
    (
        "CPU per pod with extender / scheduler alone",
        (
            "ratio: CPU time of etcd, API server, kube-scheduler and extender for one pod, "
            "divided by that of etcd, API server and kube-scheduler without the extender. The bar"
            " is the goal of 0.8 the other way round: 1 / 0.8"
        ),
    ),
    (
        "Binding requests per bound pod",
        "budget: POST requests to `pods/binding` for one pod; 1 means no retries",
    ),
    ("start to ready", "budget in s: from the start of the process until `/readyz` answers 200"),
    ("resident memory", "budget in MiB: VmRSS of the extender, which knows all nodes and pods"),
)
"""What each bar of the page is, in the order of its rows."""


class BarResult(msgspec.Struct, frozen=True):
    """A measured figure beside its bar."""

    what: str
    figure: float
    bar: float
    at_most: bool
    unit: str = ""

    @property
    def met(self) -> bool:
        """Whether the bar is met; a figure that equals its bar meets it."""
        return self.figure <= self.bar if self.at_most else self.figure >= self.bar

    @property
    def row(self) -> str:
        """A row of the table."""
        sign = "at most" if self.at_most else "at least"
        verdict = "met" if self.met else "**not met**"
        return f"| {self.what} | {self.figure:g}{self.unit} | {sign} {self.bar:g} | {verdict} |"


def results(subject: Mapping[str, Any]) -> Iterator[BarResult]:
    """Every figure of a subject that has a bar; what was not measured is left out."""
    yield from _latencies(subject["latency_ms"])
    for connections, found in subject["binds"].items():
        what = f"binds over {connections} connections / two writes"
        yield BarResult(what, found["times_two_writes"], TIMES_TWO_WRITES, at_most=False)
    for nodes, found in subject["end_to_end"].items():
        yield from _end_to_end(nodes, found)
    yield from _process(subject)


def cpu_ratio(found: Mapping[str, Any]) -> float:
    """CPU time for a pod with the extender, divided by that without it."""
    together = _cpu(found["with"], without=NOT_COUNTED)
    return round(together / _cpu(found["plain"], without=NOT_COUNTED | NOT_WITHOUT), 2)


def _cpu(rate: Mapping[str, Any], *, without: frozenset[str]) -> float:
    spent: Mapping[str, float] = rate["cpu_ms"]
    return sum(milliseconds for name, milliseconds in spent.items() if name not in without)


def _latencies(found: Mapping[str, Any]) -> Iterator[BarResult]:
    for verb, series in found.items():
        for names, bar in LATENCY_MS.items():
            if names in series:
                p99 = series[names]["p99"]["median"]
                yield BarResult(
                    f"{verb} p99, {names} node names", p99, bar, at_most=True, unit=" ms"
                )


def _end_to_end(nodes: str, found: Mapping[str, Any]) -> Iterator[BarResult]:
    rate = f"pods/s with extender / scheduler alone, {nodes} nodes"
    if nodes in FIVE_ORIGINALS:
        yield BarResult(rate, found["share"], FIVE_ORIGINALS[nodes], at_most=False)
    yield BarResult(f"{rate}: goal", found["share"], SHARE_OF_PLAIN, at_most=False)
    if "extender" in found["with"]["cpu_ms"]:
        what = f"CPU per pod with extender / scheduler alone, {nodes} nodes: goal"
        yield BarResult(what, cpu_ratio(found), TIMES_CPU, at_most=True)


def _process(subject: Mapping[str, Any]) -> Iterator[BarResult]:
    """Figures of the extender's own process, where it was started by the benchmark."""
    if subject["writes_per_bind"] is not None:
        writes = subject["writes_per_bind"]
        yield BarResult("Binding requests per bound pod", writes, BINDINGS_PER_POD, at_most=True)
    if subject["ready_seconds"] is not None:
        ready, memory = subject["ready_seconds"]["median"], subject["resident_mib"]["median"]
        yield BarResult("start to ready", ready, READY_SECONDS, at_most=True, unit=" s")
        yield BarResult("resident memory", memory, RESIDENT_MIB, at_most=True, unit=" MiB")
