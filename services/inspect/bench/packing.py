"""The packing table: GPUs left unallocated by each policy, for every trace of a folder.

``make bench-packing ARGS='--traces FOLDER'``: the folder has ``openb_node_list_gpu_node.csv`` and
pod lists ``openb_pod_list_NAME.csv``, as in the repository of the published simulator
(hkust-adsl/kubernetes-scheduler-simulator, ``data/csv``). A run is ``gpushare replay --draw once``;
all policies get the same arrivals for a seed, so they are compared in pairs.
"""

import argparse
import json
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from pathlib import Path
from statistics import fmean, stdev
from time import monotonic
from typing import Final, NamedTuple

from gpuinspect.commands.fills import Draw, Trace
from gpuinspect.sources.trace_files import read_nodes, read_pods

NODES: Final = "openb_node_list_gpu_node.csv"
PODS: Final = "openb_pod_list_{}.csv"
POLICIES: Final = ("published", "fragmentation", "binpack")
ARRIVALS: Final = 1.3
FIRST_SEED: Final = 42


class Published(NamedTuple):
    """Unallocated GPUs of the authors' own ten runs: mean, least and most."""

    mean: float
    least: int
    most: int


PUBLISHED: Final[Mapping[str, Published]] = {
    "cpu050": Published(297.8, 289, 307),
    "cpu100": Published(288.6, 274, 304),
    "cpu200": Published(307.8, 296, 325),
    "cpu250": Published(409.3, 374, 433),
    "default": Published(286.3, 280, 294),
    "gpushare100": Published(813.7, 796, 827),
    "gpushare40": Published(363.5, 358, 370),
    "gpushare60": Published(534.2, 524, 547),
    "gpushare80": Published(664.4, 653, 677),
    "gpuspec10": Published(313.8, 291, 339),
    "gpuspec20": Published(320.7, 307, 335),
    "gpuspec25": Published(326.7, 310, 352),
    "gpuspec33": Published(338.7, 324, 354),
    "multigpu20": Published(270.2, 253, 283),
    "multigpu30": Published(220.2, 213, 228),
    "multigpu40": Published(187.0, 175, 194),
    "multigpu50": Published(175.3, 163, 188),
}


class Run(NamedTuple):
    """One replay and its result."""

    trace: str
    policy: str
    seed: int
    unallocated: float = 0.0
    seconds: float = 0.0


@cache
def _trace(folder: Path, name: str) -> Trace:
    nodes, pods = read_nodes(folder / NODES), read_pods(folder / PODS.format(name))
    return Trace(nodes, pods, Draw.ONCE, ARRIVALS)


def played(folder: Path, run: Run) -> Run:
    """The run with its figures."""
    report = _trace(folder, run.trace).report(run.policy, run.seed)
    return run._replace(unallocated=report.unallocated_gpus, seconds=report.seconds)


def table(runs: Iterable[Run]) -> Iterator[str]:
    """Lines of Markdown: a row for each trace, then the traces where ours is not as good."""
    found: dict[str, dict[str, list[float]]] = {}
    for run in sorted(runs):
        found.setdefault(run.trace, {}).setdefault(run.policy, []).append(run.unallocated)
    yield "| trace | published (range) | reproduced | fragmentation | better seeds | binpack |"
    yield "|---|---|---|---|---|---|"
    behind: list[str] = []
    for trace, by_policy in found.items():
        theirs, ours, packed = (by_policy[policy] for policy in POLICIES)
        behind += [trace] if fmean(ours) > fmean(theirs) else []
        cells = (
            trace,
            _published(trace),
            _spread(theirs),
            _gain(theirs, ours),
            _wins(theirs, ours),
            _spread(packed),
        )
        yield f"| {' | '.join(cells)} |"
    yield ""
    named = f" Not on {', '.join(behind)}." if behind else ""
    yield f"At least as good on {len(found) - len(behind)} of {len(found)} traces.{named}"


def _published(trace: str) -> str:
    found = PUBLISHED.get(trace)
    return "" if found is None else f"{found.mean:.1f} ({found.least} to {found.most})"


def _spread(values: Sequence[float]) -> str:
    return f"{fmean(values):.1f} ({min(values):.0f} to {max(values):.0f})"


def _gain(theirs: Sequence[float], ours: Sequence[float]) -> str:
    """The mean, and the difference of the pairs in per cent with its standard error."""
    pairs = [mine - other for mine, other in zip(ours, theirs, strict=True)]
    mean = fmean(theirs)
    error = stdev(pairs) / len(pairs) ** 0.5 if len(pairs) > 1 else 0.0
    return f"{fmean(ours):.1f}, {100 * fmean(pairs) / mean:+.1f} ± {100 * error / mean:.1f} %"


def _wins(theirs: Sequence[float], ours: Sequence[float]) -> str:
    better = sum(mine <= other for mine, other in zip(ours, theirs, strict=True))
    return f"{better} of {len(ours)}"


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, prog="make bench-packing")
    parser.add_argument("--traces", type=Path, required=True, help="folder of the trace's CSV")
    parser.add_argument("--only", nargs="*", default=list(PUBLISHED), help="names of traces")
    parser.add_argument("--seeds", type=int, default=10, help="number of runs of each")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="processes at a time")
    parser.add_argument("--results", type=Path, help="file that keeps finished runs as JSON lines")
    return parser.parse_args()


def main() -> None:
    """Play all runs that the file of results lacks, and print the table."""
    chosen, begin = _arguments(), monotonic()
    wanted = [
        Run(trace, policy, seed)
        for seed in range(FIRST_SEED, FIRST_SEED + chosen.seeds)
        for trace in chosen.only
        for policy in POLICIES
    ]
    done = _kept(chosen.results)
    missing = [run for run in wanted if run[:3] not in done]
    with ProcessPoolExecutor(chosen.jobs) as pool:
        for run in pool.map(played, [chosen.traces] * len(missing), missing):
            done[run[:3]] = run
            _keep(chosen.results, run)
    runs = [done[run[:3]] for run in wanted]
    sys.stdout.write("\n".join(table(runs)) + "\n")
    spent = sum(run.seconds for run in runs)
    sys.stdout.write(
        f"{len(runs)} runs, {spent:.0f} s in all of them, {monotonic() - begin:.0f} s now\n"
    )


def _kept(path: Path | None) -> dict[tuple[str, str, int], Run]:
    if path is None or not path.exists():
        return {}
    runs = (Run(*json.loads(line)) for line in path.read_text().splitlines())
    return {(run.trace, run.policy, run.seed): run for run in runs}


def _keep(path: Path | None, run: Run) -> None:
    if path is not None:
        with path.open("a") as file:
            file.write(json.dumps(run) + "\n")


if __name__ == "__main__":
    main()
