"""What 1,000 nodes that offer claims cost a real API server, and the agent of each node.

``make e2e MARK=ondemand CASES=services/deviceplugin/tests/test_publishing_load.py ARGS=-s`` prints
the figures of docs/benchmarks-claims.md. The agents are those of the program without their GPUs,
in one process; each has a client and a watch of its own.
"""

import asyncio
import json
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager

import msgspec
import pytest
from fakedriver import t4
from moduletime import Clock
from sliceagent import Agent

from bench.meter import spent
from environments import fakenodes
from environments.apicall import ApiCalls
from environments.controlplane import ControlPlane
from environments.testing.planes import control_plane
from gpucore.wire.claim.resource_slices import PATH
from gpudeviceplugin.gpus.devices import NodeHardware
from gpukube.client import HttpKubeClient
from gpukube.server.listening import raise_file_limit

NODES = 1000
GPUS = 8
CHANGES = 3
"""Claims that each node prepares, one after the other."""
SPREAD_SECONDS = 30.0
"""Time in which every node has one change."""
IDLE_SECONDS = 30.0
LIMIT_SECONDS = 240
MACHINE = NodeHardware("535.1", tuple(t4(index) for index in range(GPUS)))

pytestmark = [pytest.mark.e2e, pytest.mark.ondemand, pytest.mark.timeout(900)]


@pytest.fixture
def plane() -> Iterator[ControlPlane]:
    """A control plane of its own, whose API server has nothing else to do."""
    with control_plane() as one:
        yield one


class Costs:
    """Seconds of processor time of the API server, etcd and this process, by what was done."""

    def __init__(self, plane: ControlPlane) -> None:
        self._pids = {**plane.pids(), "agents": os.getpid()}
        self._last = self._now()
        self.found: dict[str, dict[str, float]] = {}

    def note(self, done: str, count: int) -> None:
        """What was spent since the last note, in milliseconds for each of so many."""
        now = self._now()
        self.found[done] = {
            name: round(1000 * (now[name] - self._last[name]) / count, 2) for name in now
        }
        self._last = now

    def _now(self) -> dict[str, float]:
        return {name: spent(pid) for name, pid in self._pids.items()}


@asynccontextmanager
async def agents(plane: ControlPlane) -> AsyncIterator[list[Agent]]:
    """Agents of all nodes, which publish at once."""
    async with AsyncExitStack() as stack:
        found: list[Agent] = []
        for number in range(NODES):
            connecting = HttpKubeClient.connect(plane.kubeconfig, user_agent="test")
            client = await stack.enter_async_context(await connecting)
            agent = Agent(client, Clock(), MACHINE, node=f"node-{number:05}")
            agent.label({"gpushare/api": "claims"}, uid=f"uid-{number}")
            found.append(agent)
        parts = [part for agent in found for part in (agent.informer, agent.publisher)]
        tasks = [asyncio.create_task(part.run()) for part in parts]
        try:
            yield found
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)


async def published(calls: ApiCalls, generation: int) -> None:
    """Until the pool of every node has this generation."""
    async with asyncio.timeout(LIMIT_SECONDS):
        while True:
            items = msgspec.json.decode(await calls.call("GET", PATH))["items"]
            pools = [each["spec"]["pool"]["generation"] for each in items]
            if len(pools) == NODES and min(pools) >= generation:
                return
            await asyncio.sleep(1)


async def test_a_thousand_nodes_write_once_for_each_change(plane: ControlPlane) -> None:
    """One write when a node comes and one for each claim, whatever the other nodes do."""
    raise_file_limit()
    async with ApiCalls.to(plane, connections=64) as calls:
        await calls.create("/api/v1/nodes", fakenodes.nodes(NODES))
        costs = Costs(plane)
        await asyncio.sleep(IDLE_SECONDS)  # a time that is measured, not waited for
        costs.note("idle without agents, ms a second", int(IDLE_SECONDS))
        async with agents(plane) as found:
            await published(calls, 1)
            costs.note("first slice, ms a node", NODES)
            await asyncio.sleep(IDLE_SECONDS)
            costs.note("idle with agents, ms a second", int(IDLE_SECONDS))
            for change in range(CHANGES):
                for agent in found:
                    agent.claim(change, change + 1, change + 2)  # now the fullest GPU, so the first
                    await asyncio.sleep(SPREAD_SECONDS / NODES)
                await published(calls, change + 2)
            costs.note("a change, ms", NODES * CHANGES)
            writes = [[method for method, _ in agent.writes] for agent in found]
    print(json.dumps(costs.found, indent=2))
    assert {tuple(each) for each in writes} == {("create", *["update"] * CHANGES)}
