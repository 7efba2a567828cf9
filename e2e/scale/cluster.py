"""The measurement: a control plane with many nodes and pods, which exist as objects only."""

import asyncio
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

import offline
from bench import binds, digest, latency, throughput
from bench.meter import load
from bench.subject import Subject
from environments import fakenodes
from environments.apicall import ApiCalls
from environments.controlplane import ControlPlane
from environments.processes import ChildProcess
from gpukube.watch.first_list import FIRST_LIST, NODES_PATH, PODS_PATH
from gpukube.watch.lister import PIECE_BYTES
from host.progress import step
from host.stopping import end_on_signals

KINDS = 8
SCHEDULER = "scale"
NAMES = (500, 5000, 10_000)


class ScalePlan(msgspec.Struct, frozen=True):
    """How large the cluster is, and how much is measured."""

    nodes: int
    pods: int
    schedule: int
    runs: int


async def measured(plan: ScalePlan, *, seconds: float) -> dict[str, Any]:
    """All figures; TimeoutError where they take longer than so many seconds."""
    end_on_signals()
    plane = ControlPlane()
    try:
        async with asyncio.timeout(seconds):
            with step("start etcd and the API server"):
                await asyncio.to_thread(plane.start)
            async with ApiCalls.to(plane, connections=64) as calls:
                return await _measured(plan, plane, calls)
    finally:
        await asyncio.to_thread(plane.stop)


async def _measured(plan: ScalePlan, plane: ControlPlane, calls: ApiCalls) -> dict[str, Any]:
    before = load()
    rates = await _create(plan, calls)
    listing = [await _list_seconds(calls) for _ in range(plan.runs)]
    subject, ready = await _starts(plane, plan.runs)
    latencies = await _latencies(subject, plan)
    url = subject.url
    scheduler = await asyncio.to_thread(plane.scheduler, url, name=SCHEDULER)
    with step(f"{plan.schedule} pods through kube-scheduler"):
        pids = {**subject.pids(), "kube-scheduler": scheduler.pid}
        rate = await throughput.measure(calls, SCHEDULER, pods=plan.schedule, pids=pids)
    return {
        "nodes": plan.nodes,
        "gpus": fakenodes.GPUS,
        "pods": plan.pods,
        "schedule": plan.schedule,
        "runs": plan.runs,
        "kubernetes": offline.chosen_version(),
        "created_per_second": rates,
        "list_seconds": digest.spread(listing),
        "ready_seconds": digest.spread(ready),
        "latency_ms": digest.latencies(latencies),
        "pods_per_second": round(rate.per_second, 1),
        "cpu_ms_per_pod": {name: round(spent, 2) for name, spent in rate.cpu_ms.items()},
        "resident_mib": _memory(plane, subject, scheduler),
        "load_average": [before, load()],
    }


async def _create(plan: ScalePlan, calls: ApiCalls) -> dict[str, float]:
    """Objects created a second, nodes and pods."""
    nodes = fakenodes.nodes(plan.nodes)
    pods = fakenodes.running(plan.pods, plan.nodes, kinds=KINDS)
    rates = {}
    jobs: tuple[tuple[str, str, Iterable[Any]], ...] = (
        ("nodes", "/api/v1/nodes", nodes),
        ("pods", binds.PATH, pods),
    )
    for name, path, objects in jobs:
        with step(f"create {getattr(plan, name)} {name}"):
            begin = time.monotonic()
            count = await calls.create(path, objects)
            rates[name] = round(count / (time.monotonic() - begin), 1)
    return rates


async def _list_seconds(calls: ApiCalls) -> float:
    """Seconds in which the API server sends nodes and pods to a client that decodes nothing."""
    begin = time.monotonic()
    await asyncio.gather(*(_read(calls, path) for path in (NODES_PATH, PODS_PATH)))
    return time.monotonic() - begin


async def _read(calls: ApiCalls, path: str) -> None:
    async with calls.session.get(path, params=FIRST_LIST) as answer:
        answer.raise_for_status()
        async for _ in answer.content.iter_chunked(PIECE_BYTES):
            pass


async def _starts(plane: ControlPlane, runs: int) -> tuple[Subject, list[float]]:
    """The extender, started as often as there are runs, and the seconds until it was ready."""
    seconds: list[float] = []
    with step(f"start the extender {runs} times"):
        while True:
            subject = await asyncio.to_thread(Subject.ours, plane)
            seconds.append(subject.ready_seconds or 0.0)
            if len(seconds) == runs:
                return subject, seconds
            subject.stop()


async def _latencies(subject: Subject, plan: ScalePlan) -> dict[str, dict[str, list[list[float]]]]:
    found: dict[str, dict[str, list[list[float]]]] = {"filter": {}, "prioritize": {}}
    for names in sorted({count for count in (*NAMES, plan.nodes) if count <= plan.nodes}):
        with step(f"filter and prioritize, {names} names"):
            for _ in range(plan.runs):
                run = await asyncio.to_thread(latency.measure, subject, names, plan.nodes)
                for verb, series in found.items():
                    series.setdefault(str(names), []).append(run[verb])
    return found


def _memory(plane: ControlPlane, subject: Subject, scheduler: ChildProcess) -> dict[str, float]:
    """Resident MiB of each process at the end."""
    pids = {**plane.pids(), **subject.pids(), "kube-scheduler": scheduler.pid}
    return {name: resident_mib(pid) for name, pid in pids.items()}


def resident_mib(pid: int) -> float:
    """Resident memory of a process."""
    status = Path(f"/proc/{pid}/status").read_text()
    line = next(line for line in status.splitlines() if line.startswith("VmRSS"))
    return round(int(line.split()[1]) / 1024, 1)
