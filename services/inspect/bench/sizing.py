"""The sizing table: what recommended sizes free and break, at several margins.

``make bench-sizing``: the first week of each workload is recorded as the device plugin does, and in
the second week, with other random load, it runs with the size that was recommended. Requests come
from the published trace that ``make bench-packing`` takes; the shapes of use, with their sources
and assumptions, are in ``workload_shapes.py``. The same seeds give the same figures.
"""

import argparse
import os
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import cache
from pathlib import Path
from time import monotonic
from typing import Final, NamedTuple

from sizing_results import BAR_FREED, BAR_HOURS, Result, freed, kept, result, tables
from workload_mix import Trace, read_trace, workloads

FOLDER: Final = Path("~/.cache/gpushare/openb").expanduser()
DEFAULT: Final = 15
FIRST_SEED: Final = 42
INTERVAL: Final = 15.0
"""Seconds between samples: the device plugin's default."""
PIECE: Final = 10


class Piece(NamedTuple):
    """Workloads that one process takes at a time."""

    folder: Path
    trace: str
    seed: int
    number: int
    begin: int
    margins: tuple[int, ...]


@cache
def _trace(folder: Path, name: str) -> Trace:
    return read_trace(folder, name)


def played(piece: Piece) -> list[Result]:
    """The results of some workloads of a seed."""
    trace = _trace(piece.folder, piece.trace)
    found = workloads(trace, piece.seed, piece.number)[piece.begin : piece.begin + PIECE]
    return [result(each, piece.seed, piece.margins, trace.gpu_sizes, INTERVAL) for each in found]


def pieces(chosen: argparse.Namespace) -> list[Piece]:
    """The work, in parts."""
    return [
        Piece(chosen.traces, chosen.trace, seed, chosen.workloads, begin, tuple(chosen.margins))
        for seed in range(FIRST_SEED, FIRST_SEED + chosen.seeds)
        for begin in range(0, chosen.workloads, PIECE)
    ]


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__,
        prog="make bench-sizing",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument("--traces", type=Path, default=FOLDER, help="folder of the trace's CSV")
    parser.add_argument("--trace", default="default", help="name of the list of pods")
    parser.add_argument("--workloads", type=int, default=200, help="number for each seed")
    parser.add_argument("--seeds", type=int, default=5, help="number of seeds")
    parser.add_argument(
        "--margins", type=int, nargs="+", default=[0, 10, DEFAULT, 20], help="percentages"
    )
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="processes at a time")
    return parser.parse_args()


def verdict(results: Sequence[Result], margin: int) -> str:
    """Whether the bars are met."""
    return "\n".join(
        f"{'met' if value >= bar else 'MISSED'}: {what} {value:.3f} %, bar {bar} % at a margin of"
        f" {margin} %"
        for what, value, bar in (
            ("pod hours without out-of-memory", kept(results, margin), BAR_HOURS),
            ("requested memory freed", freed(results, margin), BAR_FREED),
        )
    )


def main() -> None:
    """Play all workloads of all seeds, and print the tables."""
    chosen, begin = _arguments(), monotonic()
    try:
        _trace(chosen.traces, chosen.trace)
    except (OSError, KeyError, ValueError) as error:
        sys.exit(
            f"no trace in {chosen.traces}: {error!r}; --traces takes the folder data/csv of"
            " hkust-adsl/kubernetes-scheduler-simulator"
        )
    work, results = pieces(chosen), list[Result]()
    with ProcessPoolExecutor(chosen.jobs) as pool:
        waiting = [pool.submit(played, piece) for piece in work]
        for done, future in enumerate(as_completed(waiting), 1):
            future.result()
            sys.stderr.write(f"\r{done} of {len(work)} parts, {monotonic() - begin:.0f} s")
        results = [each for future in waiting for each in future.result()]
    sys.stderr.write("\n")
    hours = sum(each.total for each in results)
    sys.stdout.write(
        f"{chosen.workloads} workloads of each of {chosen.seeds} seeds, {hours:,} pod hours in the"
        f" second week, {monotonic() - begin:.0f} s with {chosen.jobs} processes\n\n"
    )
    margin = DEFAULT if DEFAULT in chosen.margins else chosen.margins[0]
    sys.stdout.write("\n".join(tables(results, chosen.margins, margin)) + "\n")
    sys.stdout.write(f"{verdict(results, margin)}\n")


if __name__ == "__main__":
    main()
