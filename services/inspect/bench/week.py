"""Simulated weeks by policy: GPU hours wasted and waiting times, as JSON for docs/packing-week.md.

``make bench-week ARGS='--traces FOLDER --output FILE'``: the folder as for ``make bench-packing``.
Every policy gets the same jobs for a seed. The list ``multigpu50`` has no times: it takes lifetimes
of the list ``default``. The file is written after every week: an interrupted run has figures.
"""

import argparse
import json
from collections.abc import Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from gpucore.simulate.jobs import WeekPlan
from gpuinspect.commands.weeks import WeekTrace, week_of_files

NODES: Final = "openb_node_list_gpu_node.csv"
PODS: Final = "openb_pod_list_{}.csv"
MIXES: Final = ("default", "gpushare40", "multigpu50")
WITHOUT_TIMES: Final = ("multigpu50",)
POLICIES: Final = ("binpack", "spread", "fragmentation", "published")
LOADS: Final = (0.9, 1.1)
WITH_MOVES: Final = {
    "default": ("binpack", "spread", "fragmentation"),
    "multigpu50": ("binpack", "spread", "fragmentation"),
}
"""Policies by mix; at the lower load."""
FIRST_SEED: Final = 42


class Case(NamedTuple):
    """One week."""

    folder: Path
    every: int
    mix: str
    load: float
    policy: str
    seed: int
    defragmenting: bool


def main() -> None:
    """Run all weeks."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--traces", type=Path, required=True, help="folder of the CSV files")
    options.add_argument("--output", type=Path, required=True, help="JSON file of figures")
    options.add_argument("--every", type=int, default=40, help="take every n-th node")
    options.add_argument("--seeds", type=int, default=2, help="weeks of each case")
    options.add_argument("--jobs", type=int, default=1, help="processes")
    given = options.parse_args()
    found: list[Mapping[str, Any]] = []
    with ProcessPoolExecutor(given.jobs) as pool:
        cases = list(_cases(given.traces, given.every, given.seeds))
        for done in as_completed([pool.submit(_run, case) for case in cases]):
            found.append(done.result())
            found.sort(key=lambda one: json.dumps(one, sort_keys=True))
            lines = ",\n".join(json.dumps(one, sort_keys=True) for one in found)
            given.output.write_text(f"[\n{lines}\n]\n")


def _cases(folder: Path, every: int, seeds: int) -> Iterator[Case]:
    for seed in range(FIRST_SEED, FIRST_SEED + seeds):
        for load in LOADS:
            for mix in MIXES:
                for policy in POLICIES:
                    yield Case(folder, every, mix, load, policy, seed, defragmenting=False)
        for mix, policies in WITH_MOVES.items():
            for policy in policies:
                yield Case(folder, every, mix, LOADS[0], policy, seed, defragmenting=True)


def _run(case: Case) -> Mapping[str, Any]:
    known = case.folder / PODS.format(MIXES[0]) if case.mix in WITHOUT_TIMES else None
    nodes, pods = week_of_files(
        case.folder / NODES, case.folder / PODS.format(case.mix), known, case.seed
    )
    trace = WeekTrace(nodes[:: case.every], pods, WeekPlan(load=case.load))
    report = trace.report(case.policy, case.seed, defragmenting=case.defragmenting)
    return {"mix": case.mix, **msgspec.to_builtins(report)}


if __name__ == "__main__":
    main()
