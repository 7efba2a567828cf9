"""Pods a second with ResourceClaims, beside the extender and the scheduler alone, in one run.

``nominated``: pods with claims for which an extender nominates the nodes; its cost is counted.

python -m bench.claimrate --nodes 100 --pods 800 --runs 3

Every node offers its GPUs in both ways, which no real node does: so all three paths see the same
cluster. Each pod has a claim of its own, created before the clock starts, because the controller
that makes claims from templates does not run here. No agent publishes slices meanwhile.
"""

import argparse
import asyncio
import json
import statistics
import time
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from bench.binds import PATH
from bench.meter import Meter, load
from bench.subject import Subject
from environments import fakenodes
from environments.apicall import ApiCalls
from environments.binding import BoundCounter
from environments.controlplane import ControlPlane
from host.progress import step
from host.stopping import end_on_signals

API = "/apis/resource.k8s.io/v1"
CLAIMS = f"{API}/namespaces/{fakenodes.NAMESPACE}/resourceclaims"
DRIVER = "gpu.gpushare.io"
WARM_UP = 20
LIMIT_SECONDS = 240
NOMINATED = "nominated"
GIB = 10
"""Of each share; a GPU has 80."""

Object = dict[str, Any]


def main() -> None:
    """Measure and print one JSON document."""
    parser = argparse.ArgumentParser(prog="python -m bench.claimrate", description=__doc__)
    parser.add_argument("--nodes", type=int, default=100)
    parser.add_argument("--pods", type=int, default=800, help="number of pods in a run")
    parser.add_argument("--runs", type=int, default=3, help="number of runs of each path")
    options = parser.parse_args()
    found = asyncio.run(measured(options.nodes, options.pods, options.runs))
    print(json.dumps(found, indent=2))


async def measured(nodes: int, pods: int, runs: int) -> Object:
    """The rates of the three paths, in turns."""
    end_on_signals()
    plane = ControlPlane()
    try:
        with step("start etcd and the API server"):
            await asyncio.to_thread(plane.start)
        async with ApiCalls.to(plane, connections=64) as calls:
            with step(f"create {nodes} nodes and their ResourceSlices"):
                await _cluster(calls, nodes)
            return await _compared(plane, calls, pods, runs) | {"nodes": nodes}
    finally:
        await asyncio.to_thread(plane.stop)


async def _cluster(calls: ApiCalls, nodes: int) -> None:
    await calls.create("/api/v1/nodes", fakenodes.nodes(nodes))
    selector = {"cel": {"expression": f"device.driver == '{DRIVER}'"}}
    spec: Object = {"selectors": [selector]}
    await calls.call("POST", f"{API}/deviceclasses", _object("DeviceClass", "gpushare", spec))
    slices = (_slice(f"node-{number:05}") for number in range(nodes))
    await calls.create(f"{API}/resourceslices", slices)


async def _compared(plane: ControlPlane, calls: ApiCalls, pods: int, runs: int) -> Object:
    subject = await asyncio.to_thread(Subject.ours, plane)
    paths: Mapping[str, str | None] = {
        "alone": None,
        "extender": subject.url,
        "claims": None,
        NOMINATED: None,
    }
    rates: dict[str, list[float]] = {name: [] for name in paths}
    spent: dict[str, list[dict[str, float]]] = {name: [] for name in paths}
    before = load()
    for run in range(runs):
        for path, url in paths.items():
            name = f"{path}-{run}"
            process = await asyncio.to_thread(plane.scheduler, url, name=name)
            pids = {**plane.pids(), "scheduler": process.pid}
            nominator = await asyncio.to_thread(_nominator, plane, name, path)
            pids |= {} if url is None else subject.pids()
            pids |= {} if nominator is None else nominator.pids()
            claims = path in {"claims", NOMINATED}
            with step(f"{name}: {pods} pods"):
                rate, cpu = await _rate(calls, name, pods, pids, claims=claims)
            process.stop()
            if nominator is not None:
                nominator.stop()
            rates[path].append(rate)
            spent[path].append(cpu)
    return {
        "pods": pods,
        "load_before": before,
        "load_after": load(),
        "per_second": {name: statistics.median(each) for name, each in rates.items()},
        "runs": rates,
        "scheduler_cpu_ms": {
            name: statistics.median(one["scheduler"] for one in each)
            for name, each in spent.items()
        },
        "extender_cpu_ms": {
            name: statistics.median(one["extender"] for one in each)
            for name, each in spent.items()
            if "extender" in each[0]
        },
        "over_full": await _over_full(calls),
    }


def _nominator(plane: ControlPlane, scheduler: str, path: str) -> Subject | None:
    """An extender that nominates for this scheduler."""
    if path != NOMINATED:
        return None
    return Subject.ours(plane, ("--claims=true", f"--webhook-scheduler={scheduler}"))


async def _rate(
    calls: ApiCalls, scheduler: str, pods: int, pids: Mapping[str, int], *, claims: bool
) -> tuple[float, dict[str, float]]:
    """Pods bound a second, and CPU of each process for a pod in milliseconds."""
    await _schedule(calls, scheduler, WARM_UP, claims=claims)
    meter = Meter(pids)
    seconds = await _schedule(calls, scheduler, pods, claims=claims)
    return pods / seconds, meter.milliseconds(each_of=pods)


async def _schedule(calls: ApiCalls, scheduler: str, pods: int, *, claims: bool) -> float:
    """Seconds until new pods are bound, from the first creation on."""
    stamp = f"rate-{time.monotonic_ns()}-"
    names = [f"{stamp}{number}" for number in range(pods)]
    if claims:
        await calls.create(CLAIMS, map(_claim, names))
    bodies = [
        msgspec.Raw(msgspec.json.encode(_pod(name, scheduler, claims=claims))) for name in names
    ]
    async with BoundCounter(calls, prefix=stamp) as counter:
        begin = time.perf_counter()
        await calls.create(PATH, bodies)
        await counter.wait(pods, seconds=LIMIT_SECONDS)
        return time.perf_counter() - begin


def _pod(name: str, scheduler: str, *, claims: bool) -> Object:
    pod = fakenodes.pod(name, GIB, scheduler=scheduler)
    if claims:
        container = pod["spec"]["containers"][0]
        container["resources"] = {"limits": {"cpu": "10m"}, "claims": [{"name": "gpu"}]}
        pod["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimName": name}]
    return pod


def _claim(name: str) -> Object:
    requests = {"memory": f"{GIB}Gi", "compute": "10"}
    exactly = {"deviceClassName": "gpushare", "capacity": {"requests": requests}}
    spec = {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}}
    return _object("ResourceClaim", name, spec)


def _object(kind: str, name: str, spec: Object) -> Object:
    head = {"apiVersion": "resource.k8s.io/v1", "kind": kind}
    return head | {"metadata": {"name": name}, "spec": spec}


def _slice(node: str) -> Object:
    spec = {
        "driver": DRIVER,
        "nodeName": node,
        "pool": {"name": node, "generation": 1, "resourceSliceCount": 1},
        "devices": [_device(node, index) for index in range(fakenodes.GPUS)],
    }
    return _object("ResourceSlice", f"{node}-{DRIVER}", spec)


def _device(node: str, index: int) -> Object:
    memory, hundred = f"{fakenodes.UNITS}Gi", "100"
    return {
        "name": f"gpu-{index}",
        "allowMultipleAllocations": True,
        "attributes": {"uuid": {"string": f"GPU-{node}-{index}"}, "index": {"int": index}},
        "capacity": {
            "memory": _policy(memory, memory, "1Gi", memory),
            "compute": _policy(hundred, "0", "1", hundred),
        },
    }


def _policy(value: str, default: str, step_: str, most: str) -> Object:
    least = "0" if default == "0" else step_
    valid = {"min": least, "max": most, "step": step_}
    return {"value": value, "requestPolicy": {"default": default, "validRange": valid}}


async def _over_full(calls: ApiCalls) -> int:
    """GPUs of which claims consume more memory than there is; every claim is read."""
    used: dict[tuple[str, str], int] = {}
    for name, gib in _consumed(msgspec.json.decode(await calls.call("GET", CLAIMS))["items"]):
        used[name] = used.get(name, 0) + gib
    return sum(gib > fakenodes.UNITS for gib in used.values())


def _consumed(items: list[Object]) -> Iterator[tuple[tuple[str, str], int]]:
    for item in items:
        allocation = item.get("status", {}).get("allocation", {})
        for result in allocation.get("devices", {}).get("results", ()):
            gib = int(result["consumedCapacity"]["memory"].removesuffix("Gi"))
            yield (result["pool"], result["device"]), gib


if __name__ == "__main__":
    main()
