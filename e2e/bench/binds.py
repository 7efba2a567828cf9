"""How many pods a second the bind verb gives their GPUs, over 1, 8 and 32 connections."""

import asyncio
import time
from collections.abc import Iterable, Iterator, Mapping

import msgspec

from bench import lean
from bench.meter import Meter
from bench.subject import Subject
from environments import fakenodes
from environments.apicall import MERGE_PATCH, ApiCalls

PATH = f"/api/v1/namespaces/{fakenodes.NAMESPACE}/pods"
PARALLEL = 16


class Rate(msgspec.Struct):
    """One run.

    Attributes:
        per_second: things done.
        cpu_ms: CPU of each process for one of them.
    """

    per_second: float
    cpu_ms: dict[str, float]


class _Meta(msgspec.Struct):
    uid: str


class _Created(msgspec.Struct):
    metadata: _Meta


async def measure(
    subject: Subject, calls: ApiCalls, *, connections: int, pods: int, nodes: int
) -> Rate:
    """Binds a second; every one of them must succeed."""
    stamp = time.monotonic_ns()
    names = [f"bind-{stamp}-{number}" for number in range(pods)]
    uids = await _create(calls, names)
    requests = [
        _request(subject, name, uids[name], number * 7919 % nodes)
        for number, name in enumerate(names)
    ]
    meter, begin = Meter(subject.pids()), time.perf_counter()
    await lean.send_all(subject.url, requests, connections=connections)
    seconds = time.perf_counter() - begin
    return Rate(pods / seconds, meter.milliseconds(each_of=pods))


async def two_writes(
    calls: ApiCalls, *, connections: int, pods: int, nodes: int, pids: Mapping[str, int]
) -> Rate:
    """The original's writes of a bind, sent straight to the API server: a PATCH, then a Binding.

    The cost of the rig's general client is in it: a leaner one may do better.
    """
    names = [f"bind-{time.monotonic_ns()}-{number}" for number in range(pods)]
    await _create(calls, names)
    pending = enumerate(names)
    meter, begin = Meter(pids), time.perf_counter()
    await asyncio.gather(*(_write_twice(calls, pending, nodes) for _ in range(connections)))
    seconds = time.perf_counter() - begin
    return Rate(pods / seconds, meter.milliseconds(each_of=pods))


async def _write_twice(calls: ApiCalls, pending: Iterator[tuple[int, str]], nodes: int) -> None:
    patch = fakenodes.original_patch(gpu=0, units=1)
    for number, name in pending:
        path, node = f"{PATH}/{name}", f"node-{number * 7919 % nodes:05}"
        await calls.call("PATCH", path, patch, kind=MERGE_PATCH)
        target = {"apiVersion": "v1", "kind": "Node", "name": node}
        binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}}
        await calls.call("POST", f"{path}/binding", binding | {"target": target})


async def _create(calls: ApiCalls, names: Iterable[str]) -> dict[str, str]:
    """Create pods that no scheduler cares for; their UIDs by name."""
    pending, uids = iter(names), dict[str, str]()
    await asyncio.gather(*(_create_some(calls, pending, uids) for _ in range(PARALLEL)))
    return uids


async def _create_some(calls: ApiCalls, pending: Iterator[str], uids: dict[str, str]) -> None:
    for name in pending:
        created = await calls.call("POST", PATH, fakenodes.pod(name, 1, scheduler="none"))
        uids[name] = msgspec.json.decode(created, type=_Created).metadata.uid


def _request(subject: Subject, name: str, uid: str, node: int) -> bytes:
    arguments = {
        "PodName": name,
        "PodNamespace": fakenodes.NAMESPACE,
        "PodUID": uid,
        "Node": f"node-{node:05}",
    }
    return lean.request(f"{subject.url}/bind", msgspec.json.encode(arguments))
