"""Measure isolation on this machine's GPU and write docs/isolation.md.

make bench-gpu                              all figures, some ten minutes
make bench-gpu ARGS='--seconds 1 --runs 1'  a quick look
"""

import argparse
import datetime as dt
import json
import os
import platform
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

from hardware import (
    attribution,
    barepods,
    blast,
    compute,
    memory,
    plot,
    presence,
    report,
    reports,
)
from hardware.barenode import BareNode
from hardware.clients import Client
from hardware.compute import ComputeRequest, Effort
from hardware.grants import PublishedGpu
from hardware.nvidiasmi import SmiGpu
from hardware.presence import NoGpuError
from hardware.reports import VerifyReport
from host.progress import step

OUT: Final = Path(__file__).parents[2] / "docs"
COUNTS: Final = (1, 3, 5, 7)
PERCENTS: Final = (100, 75, 50, 25, 10)

Figures = dict[str, Any]


class MeasuredGpu(NamedTuple):
    """All figures of one GPU, and the reports of ``gpushare verify`` by isolation mode."""

    figures: Figures
    reports: dict[str, VerifyReport]


def main(arguments: list[str] | None = None) -> int:
    """Measure and write; exit status 3 and one sentence where this machine cannot carry it."""
    options = _parser().parse_args(arguments)
    try:
        gpu = presence.usable_gpu()
    except NoGpuError as reason:
        print(f"bench-gpu: {reason}", file=sys.stderr)
        return 3
    found = measured(gpu, Effort(options.seconds, options.runs), options.clients, options.rows)
    write(found.figures, options.out, found.reports)
    return 0


def _parser() -> argparse.ArgumentParser:
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(
        prog="make bench-gpu", description=__doc__, formatter_class=form
    )
    parser.add_argument("--seconds", type=float, default=3.0, help="of every run")
    parser.add_argument("--runs", type=int, default=3, help="of every figure; medians are reported")
    parser.add_argument("--clients", type=int, nargs="+", default=COUNTS, help="at a time")
    rows = barepods.ROWS
    parser.add_argument("--rows", nargs="+", default=rows, choices=rows, help="of gpushare verify")
    parser.add_argument("--out", type=Path, default=OUT, help="folder of the page")
    return parser


def measured(
    gpu: SmiGpu, effort: Effort, counts: Sequence[int], rows: Sequence[str] = barepods.ROWS
) -> MeasuredGpu:
    """All figures of one GPU: without MPS, then with it if it can be had."""
    with Client.local({"CUDA_VISIBLE_DEVICES": gpu.uuid}) as probe:
        described = probe.gpu
    figures: Figures = {"machine": _machine(gpu, described), "effort": effort._asdict()}
    proven: dict[str, VerifyReport] = {}
    with _node(mps=False) as node:
        size = compute.settle(node, _same(node, gpu))
        _common(figures, node, gpu, size, effort=effort, counts=counts)
        proven["none"] = _proven(node, rows)
    try:
        presence.demand_mps(described["capability"])
    except NoGpuError as reason:
        figures["machine"]["MPS"] = str(reason)
        return MeasuredGpu(figures, proven)
    with _node(mps=True) as node:
        node.wait_for_mps(gpu.uuid)
        blast.let_in(node, _same(node, gpu))
        _common(figures, node, gpu, size, effort=effort, counts=counts)
        with step("thread percentages"):
            figures["threads"] = compute.threads(node, _same(node, gpu), PERCENTS, effort)
        proven["mps"] = _proven(node, rows)
    return MeasuredGpu(figures, proven)


def _proven(node: BareNode, rows: Sequence[str]) -> VerifyReport:
    mode = "mps" if node.mps else "slicing"
    with step(f"{mode}: gpushare verify"), tempfile.TemporaryDirectory() as folder:
        return barepods.verified(node, Path(folder), rows)


@contextmanager
def _node(*, mps: bool) -> Iterator[BareNode]:
    with (
        tempfile.TemporaryDirectory(prefix="gpushare-") as root,
        BareNode(Path(root), mps=mps) as node,
    ):
        yield node


def _same(node: BareNode, gpu: SmiGpu) -> PublishedGpu:
    return next(each for each in node.gpus() if each.uuid == gpu.uuid)


def _common(
    figures: Figures,
    node: BareNode,
    smi: SmiGpu,
    size: ComputeRequest,
    *,
    effort: Effort,
    counts: Sequence[int],
) -> None:
    """What is measured in both modes."""
    mode, gpu = "mps" if node.mps else "slicing", _same(node, smi)

    def keep(part: str, found: Any) -> None:
        figures.setdefault(part, {})[mode] = found

    with step(f"{mode}: memory limits"):
        keep("memory", memory.limits(node, gpu))
    with step(f"{mode}: one client alone"):
        keep("alone", compute.alone(node, gpu, size, effort))
    with step(f"{mode}: {', '.join(map(str, counts))} clients"):
        keep("crowds", compute.crowds(node, gpu, size, counts, effort))
    if presence.host_processes():
        with step(f"{mode}: whose memory it is"):
            keep("attribution", attribution.seen(node, gpu))
    with step(f"{mode}: crashes"):
        crashes = {"fault": blast.fault, "killed": blast.killed}
        found = {
            kind: blast.radius(node, gpu, size, crash, work_seconds=effort.seconds)
            for kind, crash in crashes.items()
        }
        keep("crash", found)


def _machine(gpu: SmiGpu, described: dict[str, Any]) -> dict[str, str]:
    return {
        "GPU": f"{gpu.model}, {gpu.memory_mib} MiB",
        "Multiprocessors": str(described["multiprocessors"]),
        "Compute capability": described["capability"],
        "Driver": gpu.driver,
        "CUDA of the driver": described["cuda"],
        "MPS": "yes",
        "Host": f"{os.cpu_count()} processors, Linux {platform.release()}",
        "Date": dt.datetime.now(tz=dt.UTC).date().isoformat(),
    }


def write(figures: Figures, folder: Path, proven: Mapping[str, VerifyReport]) -> None:
    """The page, its plots, and the figures and reports as JSON beside them."""
    beside = folder / "isolation"
    beside.mkdir(parents=True, exist_ok=True)
    (beside / "figures.json").write_text(json.dumps(figures, indent=2) + "\n")
    for name, picture in plots(figures).items():
        (beside / f"{name}.svg").write_text(picture)
    for mode, found in proven.items():
        reports.write(found, beside / reports.FOLDER.name, mode)
    (folder / "isolation.md").write_text(
        report.page(figures, reports.read(beside / reports.FOLDER.name))
    )


def plots(figures: Figures) -> dict[str, str]:
    """The SVGs by name."""
    gpu = figures["machine"]["GPU"]
    crowds = {
        report.MODES[mode]: _points(found, "requests_per_s")
        for mode, found in figures["crowds"].items()
    }
    drawn = {"crowds": plot.lines(f"Requests answered, {gpu}", "clients", "requests/s", crowds)}
    if "threads" in figures:
        series = {"multiply-adds": _points(figures["threads"], "tflops")}
        title = f"Arithmetic of one client alone, {gpu}"
        drawn["threads"] = plot.lines(title, "active thread percentage", "TFLOP/s", series)
    return drawn


def _points(found: dict[str, Any], key: str) -> list[plot.PlotPoint]:
    ordered = sorted((float(x), values[key]) for x, values in found.items())
    return [plot.PlotPoint(x, min(v), sorted(v)[len(v) // 2], max(v)) for x, v in ordered]


if __name__ == "__main__":
    sys.exit(main())
