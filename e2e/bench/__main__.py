"""Measure the extender on a real API server and write what was found.

make bench                                        5,000 nodes x 8 cards, 50,000 pods
make bench ARGS='--nodes 500 --pods 2000'         a quick look
make bench ARGS='--extender-url http://127.0.0.1:12345/gpushare-scheduler'
                                                  another extender in the same run; start it with
                                                  the kubeconfig that is printed
"""

import argparse
import asyncio
import json
import os
import platform
from pathlib import Path
from typing import Any

from bench import binds, latency, plot, report, throughput
from bench.subject import Subject
from cluster.progress import say, step
from environments import fakenodes
from environments.apicall import ApiCalls
from environments.controlplane import ControlPlane

OUT = Path(__file__).parents[2] / "docs"
CONNECTIONS = (1, 8, 32)
BINDS_EACH = 600
NODE_STEPS = (100, 500, 5000)


def main() -> None:
    """Bring the control plane up, measure, write, take it down."""
    options = _parser().parse_args()
    plane = ControlPlane()
    try:
        with step("start etcd and the API server"):
            plane.start()
        found = asyncio.run(_measure(plane, options))
    finally:
        plane.stop()
    _write(found, options.out)


def _parser() -> argparse.ArgumentParser:
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(prog="make bench", description=__doc__, formatter_class=form)
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--pods", type=int, default=50_000, help="pods that hold shares already")
    parser.add_argument("--runs", type=int, default=3, help="of every figure; medians are reported")
    parser.add_argument("--schedule", type=int, default=1500, help="pods of an end-to-end run")
    parser.add_argument("--extender-url", action="append", default=[], help="measured beside ours")
    parser.add_argument("--out", type=Path, default=OUT, help="folder of the report")
    return parser


async def _measure(plane: ControlPlane, options: argparse.Namespace) -> dict[str, Any]:
    async with ApiCalls.to(plane, connections=64) as calls:
        with step(f"create {options.nodes} nodes"):
            await calls.create("/api/v1/nodes", fakenodes.nodes(options.nodes))
        with step(f"create {options.pods} pods that hold shares"):
            await calls.create(binds.PATH, fakenodes.running(options.pods, options.nodes))
        if options.extender_url:
            say(f"kubeconfig of the API server: {plane.kubeconfig}")
        others = [Subject.other(url) for url in options.extender_url]
        subjects = [await asyncio.to_thread(Subject.ours, plane), *others]
        found = [await _subject(subject, plane, calls, options) for subject in subjects]
        return {
            "machine": _machine(),
            "nodes": options.nodes,
            "cards": fakenodes.CARDS,
            "pods": options.pods,
            "runs": options.runs,
            "without_extender": await _end_to_end(plane, calls, None, options),
            "subjects": found,
        }


async def _subject(
    subject: Subject, plane: ControlPlane, calls: ApiCalls, options: argparse.Namespace
) -> dict[str, Any]:
    spread: dict[str, dict[str, list[float]]] = {}
    for verb in ("filter", "prioritize"):
        for names in (n for n in NODE_STEPS if n <= options.nodes):
            with step(f"{subject.name}: {verb}, {names} names"):
                times: list[float] = []
                for _ in range(options.runs):
                    times += await asyncio.to_thread(
                        latency.measure, subject, verb, names, options.nodes
                    )
                spread.setdefault(verb, {})[str(names)] = times
    rates: dict[str, list[float]] = {}
    for connections in CONNECTIONS:
        with step(f"{subject.name}: binds over {connections} connections"):
            rates[str(connections)] = [
                await binds.measure(
                    subject,
                    calls,
                    connections=connections,
                    pods=BINDS_EACH,
                    nodes=options.nodes,
                )
                for _ in range(options.runs)
            ]
    return {
        "name": subject.name,
        "latency_ms": spread,
        "binds_per_second": rates,
        "pods_per_second": await _end_to_end(plane, calls, subject, options),
        "ready_seconds": subject.ready_seconds,
        "resident_mib": subject.resident_mib(),
    }


async def _end_to_end(
    plane: ControlPlane, calls: ApiCalls, subject: Subject | None, options: argparse.Namespace
) -> list[float]:
    name = f"bench-{subject.name if subject else 'plain'}".replace(":", "-").replace(".", "-")
    url = subject.url if subject else None
    scheduler = await asyncio.to_thread(plane.scheduler, url, name=name)
    with step(f"{name}: {options.schedule} pods through kube-scheduler"):
        rates = [
            await throughput.measure(calls, name, pods=options.schedule)
            for _ in range(options.runs)
        ]
    scheduler.stop()
    return rates


def _machine() -> str:
    model = next(
        (
            line.split(":", 1)[1].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if line.startswith("model name")
        ),
        platform.machine(),
    )
    return f"{os.cpu_count()} x {model}, Python {platform.python_version()}"


def _write(found: dict[str, Any], folder: Path) -> None:
    pictures = folder / "benchmarks"
    pictures.mkdir(parents=True, exist_ok=True)
    for subject in found["subjects"]:
        for verb, series in subject["latency_ms"].items():
            named = {f"{names} names": times for names, times in series.items()}
            title = f"{subject['name']}: {verb}, {found['pods']} pods known"
            picture = pictures / f"{verb}-{subject['name'].replace(':', '-')}.svg"
            picture.write_text(plot.distributions(title, named))
    digest = report.digest(found)
    (pictures / "extender.json").write_text(json.dumps(digest, indent=2) + "\n")
    text = report.markdown(digest)
    (folder / "benchmarks-extender.md").write_text(text)
    print(text)


if __name__ == "__main__":
    main()
