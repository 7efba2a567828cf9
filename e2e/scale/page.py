"""docs/benchmarks-scale.md from the recorded figures."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from scale import figures

_HEAD: Final = """\
# Scale, chaos and soak

What one machine carries, what happens when every part of the stack is killed at random, and
whether memory stays flat. API server, etcd, kube-scheduler, extender and device plugins are the
real programs, as processes on one machine; nodes of the first part are objects only. All figures
are in [benchmarks/scale.json](benchmarks/scale.json). `ARGS=--record` makes `make scale`, `make
chaos` and `make soak` write their part of this page.
"""

_SCALE: Final = """\
## {nodes:,} nodes and {pods:,} pods

`make scale`: {nodes:,} nodes x {gpus} GPUs, {pods:,} running pods with shares of 1 to 8 units;
medians of {runs} runs. Kubernetes {kubernetes} on {machine}, shared by all processes; commit
{code}; load average {load}.
"""

_NO_SCALE: Final = """\
## 10,000 nodes and 100,000 pods

No figures of `make scale` have been recorded yet: the one full run on 2 shared cores failed while
it wrote its results. The API server took 13 s for the nodes and 161 s for the pods there.
"""

_RANGE: Final = """\
`make scale` measures again and fails where a figure is outside its range, that is more than 20 %
worse than the one recorded here. Run it on the machine that the figures were recorded on.
"""

_CHAOS: Final = """\
## Kills at random

`make chaos ARGS='--rounds {kills} --seed {seed}'`: {kills} kills on three nodes with 8 GPUs (mock
driver, real device plugins), while pods with shares, two containers, exclusive GPUs and compute
come and go. After every kill the run checks that no GPU is over its capacity by the devices and
the environment that containers really have, and that no pod is lost. After every 25 kills it pauses
until the accounts of the extender and of the kubelets are equal. Recovery is the time until a pod
that is created after the kill runs, and until the node offers all its devices; after kills of etcd
and the API server it counts from the API server's readiness. The limit is 10 s. {machine}; commit
{code}; load average {load}.
"""

_CHAOS_KIND: Final = """\
## Kills at random on a kind cluster

`make chaos ARGS='--kind --rounds {kills} --seed {seed}'`: the same with the chart on a kind cluster
of Kubernetes {kubernetes}: real kubelets, containerd and containers on two nodes with {gpus} GPUs
(mock driver). kubelet starts containers again and systemd starts kubelet again; kubelet's limit of
the time between restarts of a container (`crashLoopBackOff.maxContainerRestartPeriod`) is 1 s, as
it would otherwise wait for up to five minutes before it starts a part that is killed repeatedly.
Scheduler and extender have two replicas, of which one is killed. A leader that is killed keeps its
lease for up to 15 s, the default of the chart, and nobody schedules meanwhile; recovery counts from
the moment at which a scheduler leads.
What containers have is read from the environment of their processes and from kubelet's checkpoint.
{machine}; commit {code}; load average {load}.
"""

_OUTCOME: Final = """\
{pods:,} pods were created, {refused} of them refused by their kubelet and created anew.
At {pauses} pauses the accounts were equal within {settled_seconds:g} s. Violations: {count}.
"""

_SOAK: Final = """\
## Memory over time

`make soak ARGS='--minutes {minutes:g}'`: {pods:,} pods in {minutes:g} minutes on the same three
nodes, without kills. A line is fitted to resident memory after the first quarter of the time; the
run fails where it rises by more than 3 % and 2 MiB in the extender or in a device plugin.
{machine}; commit {code}.
"""


def text(recorded: Mapping[str, Any]) -> str:
    """The page, with the parts that were recorded."""
    parts = [_HEAD]
    parts += _scale(recorded["scale"]) if "scale" in recorded else [_NO_SCALE]
    if "limits" in recorded:
        parts += [*_limits(recorded["limits"])]
    if "chaos" in recorded:
        parts += [*_chaos(_CHAOS, recorded["chaos"])]
    if "chaos-kind" in recorded:
        parts += [*_chaos(_CHAOS_KIND, recorded["chaos-kind"])]
    if "soak" in recorded:
        parts += [*_soak(recorded["soak"])]
    return "\n".join(parts)


def _scale(found: Mapping[str, Any]) -> list[str]:
    load = " to ".join(f"{one:g}" for one in found["load_average"])
    rows = []
    for one in figures.of(found):
        limit = one.value / (1 + figures.TOLERANCE)
        sign = "at least" if one.higher_is_better else "at most"
        if not one.higher_is_better:
            limit = one.value * (1 + figures.TOLERANCE)
        rows.append((one.name, f"{one.value:g} {one.unit}", f"{sign} {limit:.4g}"))
    return [
        _SCALE.format(**found, load=load),
        _table(("figure", "median", "range"), rows),
        _RANGE,
        _created(found),
    ]


def _created(found: Mapping[str, Any]) -> str:
    spent = ", ".join(f"{name} {ms:g} ms" for name, ms in found["cpu_ms_per_pod"].items())
    rates, ready = found["created_per_second"], found["ready_seconds"]
    listed = found["list_seconds"]
    return (
        f"The runs of the start took {ready['min']:g} to {ready['max']:g} s. A client that decodes "
        f"nothing gets both lists\nin {listed['min']:g} to {listed['max']:g} s.\nProcessor time "
        f"for a pod: {spent} (`rig` is the benchmark).\n"
        f"The objects were created directly through the API: {rates['nodes']:g} nodes and "
        f"{rates['pods']:g} pods a second.\n"
    )


def _limits(found: Sequence[Mapping[str, Any]]) -> list[str]:
    """Larger clusters: where the machine ends."""
    rows = [
        (
            f"{one['nodes']:,} / {one['pods']:,}",
            f"{one['ready_seconds']['median']:g} s",
            f"{_slowest_filter(one):g} ms",
            f"{one['pods_per_second']:g}",
            *(f"{one['resident_mib'][name]:,.0f}" for name in _PROCESSES),
        )
        for one in found
    ]
    columns = ("nodes / pods", "start", "filter p99, all nodes named", "pods/s")
    head = (*columns, *(f"{name} MiB" for name in _PROCESSES))
    return ["## Larger clusters\n", _table(head, rows)]


_PROCESSES: Final = ("extender", "kube-scheduler", "kube-apiserver", "etcd")


def _slowest_filter(found: Mapping[str, Any]) -> float:
    series: Mapping[str, Any] = found["latency_ms"]["filter"]
    median: float = series[max(series, key=int)]["p99"]["median"]
    return median


def _chaos(head: str, found: Mapping[str, Any]) -> list[str]:
    outcome = [_OUTCOME.format(**found, count=len(found["violations"]))]
    outcome += [f"- {sentence}" for sentence in found["violations"]]
    outcome += ["", found["note"]] if found.get("note") else []
    return [head.format(**found), "\n".join(found["table"]) + "\n", "\n".join(outcome) + "\n"]


def _soak(found: Mapping[str, Any]) -> list[str]:
    rows = [
        (name, f"{one['mib']:g}", f"{one['rise_mib']:g}", f"{one['mib_per_hour']:g}")
        for name, one in found["resident_mib"].items()
    ]
    head = ("process", "mean MiB", "rise of the line, MiB", "MiB an hour")
    return [_SOAK.format(**found), _table(head, rows)]


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    lines += [f"| {' | '.join(row)} |" for row in rows]
    return "\n".join(lines) + "\n"
