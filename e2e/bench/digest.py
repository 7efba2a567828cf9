"""Samples to figures: medians of runs with their spread; the samples themselves are left out."""

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from bench.backlog import Placed
from bench.binds import Rate
from bench.bursts import Burst
from bench.creation import Delays

Spread = dict[str, float]
Latencies = Mapping[str, Mapping[str, Sequence[Sequence[float]]]]


def spread(values: Sequence[float]) -> Spread:
    """Least, median and greatest of a few runs."""
    return {
        "min": round(min(values), 3),
        "median": round(statistics.median(values), 3),
        "max": round(max(values), 3),
    }


def latencies(found: Latencies) -> dict[str, Any]:
    """Of each verb and number of names, p50 and p99 of each run, and the slowest call of all."""
    return {
        verb: {names: _percentiles(runs) for names, runs in series.items()}
        for verb, series in found.items()
    }


def _percentiles(runs: Sequence[Sequence[float]]) -> dict[str, Any]:
    ordered = [sorted(run) for run in runs]
    return {
        "p50": spread([run[len(run) // 2] for run in ordered]),
        "p99": spread([run[int(len(run) * 0.99)] for run in ordered]),
        "max": round(max(run[-1] for run in ordered), 3),
    }


def rates(runs: Sequence[Rate]) -> dict[str, Any]:
    """A rate, and the median CPU of each process for one thing done."""
    return {
        "per_second": spread([run.per_second for run in runs]),
        "cpu_ms": {
            name: round(statistics.median(run.cpu_ms[name] for run in runs), 2)
            for name in runs[0].cpu_ms
        },
    }


def binds(bound: Sequence[Rate], twice: Sequence[Rate]) -> dict[str, Any]:
    """Binds, and beside them what the API server does of the original's two writes."""
    found, writes = rates(bound), rates(twice)
    times = found["per_second"]["median"] / writes["per_second"]["median"]
    return found | {"two_writes": writes, "times_two_writes": round(times, 2)}


def backlog(runs: Sequence[Placed]) -> dict[str, Any]:
    """A rate, and the median number of nodes that the pods are on."""
    return rates(runs) | {"nodes": round(statistics.median(run.nodes for run in runs))}


def bursts(runs: Sequence[Mapping[str, Burst]]) -> dict[str, Any]:
    """Of each stream of pods a rate, and medians of what the pods were given."""
    return {name: _burst([run[name] for run in runs]) for name in runs[0]}


def _burst(runs: Sequence[Burst]) -> dict[str, Any]:
    counts = ("created_seconds", "nodes", "gpus")
    medians = {
        name: round(statistics.median(getattr(run, name) for run in runs), 1) for name in counts
    }
    return rates(runs) | medians | {"burst": [run.profiles.get("burst", 0) for run in runs]}


def creation(delays: Delays) -> dict[str, Any]:
    """Milliseconds from creation to binding, and CPU of each process for a pod."""
    ordered = delays.milliseconds
    return {
        "p50": round(ordered[len(ordered) // 2], 1),
        "p99": round(ordered[int(len(ordered) * 0.99)], 1),
        "cpu_ms": {name: round(spent, 2) for name, spent in delays.cpu_ms.items()},
    }


def end_to_end(plain: Sequence[Rate], extended: Sequence[Rate]) -> dict[str, Any]:
    """Runs without and with the extender, taken in turns, and the share that is left with it."""
    alone, together = rates(plain), rates(extended)
    share = together["per_second"]["median"] / alone["per_second"]["median"]
    return {"plain": alone, "with": together, "share": round(share, 3)}
