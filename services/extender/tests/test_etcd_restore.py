"""A real etcd is restored from a backup under a running extender and a plugin's informer.

Part of ``make e2e``, as test_controlplane.py.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from time import monotonic
from typing import Any

import msgspec
import pytest
from planes import Source
from running import Running, until

from environments import fakenodes
from environments.apicall import ApiCalls
from environments.controlplane import ControlPlane
from environments.testing.planes import control_plane
from gpucore.accounting.ledger import Ledger, rebuilt
from gpucore.node.grant import GrantPolicy
from gpucore.wire.lists import decode_nodes, decode_pods
from gpucore.wire.names import DEFAULT_NAMES
from gpudeviceplugin.cluster.informers import SILENCE_SECONDS, pods_of
from gpudeviceplugin.state import NodeState
from gpukube.client import HttpKubeClient
from gpukube.watch.informer import Informer

PODS = "/api/v1/namespaces/default/pods"
NODE, GPUS, UNITS, SHARE = "node-00000", 2, 15, 4
BOUND = 60.0
"""Seconds after which everything has to be correct."""
Object = dict[str, Any]

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(400)]  # two starts of the plane are in it


@pytest.fixture
def plane() -> Iterator[ControlPlane]:
    """Etcd and an API server of this test alone."""
    with control_plane() as one:
        yield one


@pytest.fixture
async def extender(plane: ControlPlane, tmp_path: Path) -> AsyncIterator[Running]:
    """A ready extender with the settings of the chart."""
    async with ApiCalls.to(plane) as calls:
        await calls.create("/api/v1/nodes", fakenodes.nodes(1, gpus=GPUS, units=UNITS))
    async with Running(Source(plane), tmp_path, bind_deadline=4) as running:
        await running.ready()
        yield running


@pytest.fixture
async def plugin(plane: ControlPlane) -> AsyncIterator[NodeState]:
    """What the device plugin of the node knows of its pods."""
    state = NodeState(GrantPolicy())
    async with await HttpKubeClient.connect(plane.kubeconfig, user_agent="test") as client:
        informer = Informer(client, pods_of(NODE), state, silence=SILENCE_SECONDS)
        task = asyncio.create_task(informer.run())
        try:
            await informer.wait_for_sync()
            yield state
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


async def test_an_etcd_restore_is_survived_without_ghosts_and_without_over_commitment(
    plane: ControlPlane, extender: Running, plugin: NodeState, tmp_path: Path
) -> None:
    """Within 60 s the books equal a fresh list, though binds were requested all the time.

    The backup has four pods that were deleted since, so the extender believes the GPUs to be free
    that they hold again; and it lacks two pods that the extender knows to be running.
    """
    file = tmp_path / "backup"
    async with ApiCalls.to(plane) as calls:
        waiting = [await create(calls, f"waiting-{number}") for number in range(6)]
        old = [await create(calls, f"old-{number}") for number in range(4)]
        for pod in old:
            assert await extender.bind(pod, NODE) == (200, "")
        await asyncio.to_thread(plane.save, file)
        for pod in old:
            await calls.call("DELETE", f"{PODS}/{pod['metadata']['name']}?gracePeriodSeconds=0")
        ghosts = [await create(calls, f"ghost-{number}") for number in range(2)]
        for pod in ghosts:
            assert await extender.bind(pod, NODE) == (200, "")
        for number in range(40):  # the versions of the backup are far behind
            await create(calls, f"later-{number}")
        await until("all is known", lambda: names(plugin) == {"ghost-0", "ghost-1"})
        await until("the GPUs are free", lambda: used(extender.state.ledger) == 2 * SHARE)
    async with AsyncExitStack() as stack:
        restoring = asyncio.create_task(asyncio.to_thread(plane.restore, file))
        vital = extender.service._informers.vital
        await until(
            "the API server is away, or back already",
            lambda: restoring.done() or not any(one.confirmed for one in vital),
        )
        binding = asyncio.create_task(bind_for_ever(extender, waiting))
        stack.callback(binding.cancel)
        await restoring
        began = monotonic()
        calls = await stack.enter_async_context(ApiCalls.to(plane))
        await correct(calls, extender, plugin)
        seconds = monotonic() - began
        print(f"correct {seconds:.1f} s after the API server was ready")
        assert seconds < BOUND
        await filled(calls, 24)
        assert used(extender.state.ledger) == 24
        binding.cancel()
        with suppress(asyncio.CancelledError):
            await binding
        truth = await fresh(calls)
        assert used(truth) == 24
        assert not any(node_info.overfull for node_info in truth.nodes().values())


async def create(calls: ApiCalls, name: str) -> Object:
    """A pending pod as the API server made it."""
    item = fakenodes.pod(name, SHARE, scheduler="none")
    made: Object = msgspec.json.decode(await calls.call("POST", PODS, item))
    return made


async def bind_for_ever(extender: Running, pods: list[Object]) -> None:
    """What an impatient scheduler does."""
    while True:
        for pod in pods:
            await extender.bind(pod, NODE)
        await asyncio.sleep(0.02)


async def fresh(calls: ApiCalls) -> Ledger:
    """The books that a start would read now."""
    nodes = decode_nodes(await calls.call("GET", "/api/v1/nodes"))
    pods = decode_pods(await calls.call("GET", "/api/v1/pods"))
    return rebuilt(DEFAULT_NAMES, nodes.items, pods.items)


async def correct(calls: ApiCalls, extender: Running, plugin: NodeState) -> None:
    """Until extender and plugin agree with a fresh list; no list on the way is over-committed."""
    async with asyncio.timeout(2 * BOUND):
        while True:
            truth = await fresh(calls)
            assert not any(node_info.overfull for node_info in truth.nodes().values())
            bound = {allocation.name for allocation in truth.allocations().values()}
            agreed = not extender.service.health.obstacle() and (
                by_gpu(extender.state.ledger) == by_gpu(truth)
            )
            if agreed and names(plugin) == bound:
                assert {"old-0", "old-1", "old-2", "old-3"} <= bound
                return
            await asyncio.sleep(0.2)


async def filled(calls: ApiCalls, units: int) -> None:
    """Until a fresh list has so many units in use; the books count a bind before it is written."""
    async with asyncio.timeout(BOUND):
        while True:
            if used(await fresh(calls)) == units:
                return
            await asyncio.sleep(0.05)


def by_gpu(ledger: Ledger) -> Counter[int]:
    """Units in use on each GPU."""
    node_info = ledger.node(NODE)
    return Counter(
        {index: gpu.used for index, gpu in node_info.devices.items()} if node_info else {}
    )


def used(ledger: Ledger) -> int:
    """Units in use on the node."""
    return by_gpu(ledger).total()


def names(plugin: NodeState) -> set[str]:
    """Pods of the node, by name."""
    return {pod.name for pod in plugin.pods.values()}
