"""Measure the extender on a real API server and write docs/benchmarks-extender.md.

make bench                                        5,000 nodes x 8 GPUs, 50,000 pods; then pods
                                                  through kube-scheduler with 1,000 nodes as well
make bench ARGS='--nodes 500 --pods 2000'         a smaller cluster, done sooner
make bench ARGS='--only start --runs 5'           one part, printed and not written to the page
make bench ARGS='--only commands --nodes 1000 --pods 10000 --runs 15'
                                                  gpushare inspect of that cluster, and --help
make bench ARGS='--extender-url http://127.0.0.1:12345/gpushare-scheduler'
                                                  measures another extender in the same run; start
                                                  it with the kubeconfig that is printed
"""

import argparse
import asyncio
import json
import os
import platform
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import chain
from pathlib import Path
from typing import Any

import offline
from bench import binds, digest, parts, plot, report
from bench.backlog import ROWS as BACKLOG_ROWS
from bench.bursts import BURST_ROWS
from bench.creation import CREATION_ROWS
from bench.measures import BenchPlan, Measures
from bench.subject import Subject
from environments import fakenodes
from environments.apicall import ApiCalls
from environments.controlplane import ControlPlane
from host.progress import say, step
from host.stopping import end_on_signals

OUT = Path(__file__).parents[2] / "docs"
KINDS = 8
"""Sizes of the shares that are held, so that nodes differ from each other."""


def main() -> None:
    """Bring control planes up, measure, write, take them down."""
    options = _parser().parse_args()
    if options.only:
        print(json.dumps(asyncio.run(_some(options)), indent=2))
        return
    _write(asyncio.run(_measure(options)), options.out)


def _parser() -> argparse.ArgumentParser:
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(prog="make bench", description=__doc__, formatter_class=form)
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--pods", type=int, default=50_000, help="running pods with shares")
    parser.add_argument(
        "--fewer-nodes",
        type=int,
        default=1000,
        help="number of nodes of a second cluster for pods through kube-scheduler; 0: none",
    )
    parser.add_argument(
        "--runs", type=int, default=3, help="number of runs of each figure; the median counts"
    )
    parser.add_argument("--binds", type=int, default=600, help="number of pods in a run of binds")
    parser.add_argument(
        "--schedule", type=int, default=1200, help="number of pods in a run with kube-scheduler"
    )
    parser.add_argument("--backlog", type=int, default=3000, help="number of pods in a backlog")
    parser.add_argument(
        "--only",
        action="append",
        choices=parts.PARTS,
        help="measure this part only; writes no file",
    )
    parser.add_argument(
        "--row",
        action="append",
        choices=tuple({**BURST_ROWS, **BACKLOG_ROWS, **CREATION_ROWS}),
        help="measure these rows of bursts, backlogs and creations only",
    )
    parser.add_argument("--extender-url", action="append", default=[], help="measure this one too")
    parser.add_argument("--out", type=Path, default=OUT, help="directory of the page")
    return parser


async def _measure(options: argparse.Namespace) -> dict[str, Any]:
    loads: list[tuple[str, float]] = []
    async with _cluster(options, options.nodes, options.pods) as (plane, measures):
        if options.extender_url:
            say(f"kubeconfig of the API server: {plane.kubeconfig}")
        ours, seconds, memory = await measures.started()
        found = [await _subject(ours, measures, options.nodes)]
        memory.append(ours.resident_mib() or 0.0)  # and at the end of all that
        found[0] |= {
            "ready_seconds": digest.spread(seconds),
            "resident_mib": digest.spread(memory),
        }
        ours.stop()
        found[0]["backlog"] = {str(options.nodes): await measures.backlog()}
        for url in options.extender_url:
            other = await asyncio.to_thread(Subject.other, url)
            found.append(await _subject(other, measures, options.nodes))
        loads += measures.loads
    if options.fewer_nodes:
        pods = options.pods * options.fewer_nodes // options.nodes
        async with _cluster(options, options.fewer_nodes, pods) as (plane, measures):
            subject = await asyncio.to_thread(Subject.ours, plane)
            rates = await measures.end_to_end(subject)
            found[0]["end_to_end"][str(options.fewer_nodes)] = rates
            subject.stop()
            found[0]["backlog"][str(options.fewer_nodes)] = await measures.backlog()
            loads += measures.loads
    return {
        "machine": about_machine(),
        "kubernetes": offline.chosen_version(),
        "code": code(),
        "nodes": options.nodes,
        "gpus": fakenodes.GPUS,
        "pods": options.pods,
        "runs": options.runs,
        "subjects": found,
        "load_average": loads,
    }


async def _some(options: argparse.Namespace) -> dict[str, Any]:
    async with _cluster(options, options.nodes, options.pods) as (plane, measures):
        return await parts.measure(options.only, plane, measures, nodes=options.nodes)


@asynccontextmanager
async def _cluster(
    options: argparse.Namespace, nodes: int, pods: int
) -> AsyncIterator[tuple[ControlPlane, Measures]]:
    """A control plane with nodes, and pods that hold shares."""
    end_on_signals()
    plane = ControlPlane()
    rows = frozenset(options.row or ())
    plan = BenchPlan(options.runs, options.binds, options.schedule, options.backlog, rows)
    try:
        with step("start etcd and the API server"):
            await asyncio.to_thread(plane.start)
        async with ApiCalls.to(plane, connections=64) as calls:
            with step(f"create {nodes} nodes"):
                await calls.create("/api/v1/nodes", fakenodes.nodes(nodes))
            with step(f"create {pods} pods that hold shares"):
                await calls.create(binds.PATH, fakenodes.running(pods, nodes, kinds=KINDS))
            yield plane, Measures(plane, calls, plan, nodes=nodes)
    finally:
        await asyncio.to_thread(plane.stop)


async def _subject(subject: Subject, measures: Measures, nodes: int) -> dict[str, Any]:
    samples = await measures.latencies(subject)
    return {
        "name": subject.name,
        "samples": samples,
        "latency_ms": digest.latencies(samples),
        "binds": await measures.binds(subject),
        "writes_per_bind": subject.writes_per_bind(),
        "end_to_end": {str(nodes): await measures.end_to_end(subject)},
        "ready_seconds": None,
        "resident_mib": None,
    }


def about_machine() -> str:
    """Number and model of the processors, and the version of Python."""
    model = next(
        (
            line.split(":", 1)[1].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if line.startswith("model name")
        ),
        platform.machine(),
    )
    return f"{os.cpu_count()} x {model}, Python {platform.python_version()}"


def code() -> str:
    """The commit that is measured, with its date; marked where files differ from it."""
    commit = _git("log", "-1", "--format=%h of %ad", "--date=short") or "unknown"
    changed = _git("status", "--porcelain", "--untracked-files=no")
    return f"{commit}, with changes" if changed else commit


def _git(*arguments: str) -> str:
    command = ("git", "-C", str(OUT), *arguments)
    return subprocess.run(command, check=False, capture_output=True, text=True).stdout.strip()


def _write(found: dict[str, Any], folder: Path) -> None:
    pictures = folder / "benchmarks"
    pictures.mkdir(parents=True, exist_ok=True)
    for subject in found["subjects"]:
        for verb, series in subject.pop("samples").items():
            named = {
                f"{names} names": list(chain.from_iterable(runs)) for names, runs in series.items()
            }
            title = f"{subject['name']}: {verb}, {found['pods']} pods known"
            picture = pictures / f"{verb}-{subject['name']}.svg"
            picture.write_text(plot.distributions(title, named))
    (pictures / "extender.json").write_text(json.dumps(found, indent=2) + "\n")
    text = report.page(found)
    (folder / "benchmarks-extender.md").write_text(text)
    print(text)


if __name__ == "__main__":
    main()
