"""A kube-scheduler of 1.20 that is configured by a policy file, as until 1.22, calls the extender.

Part of ``make e2e``, as test_steering.py; on the oldest Kubernetes whichever is chosen.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from chartconfig import chart_config
from planes import Source, scheduling
from running import Running
from test_steering import SECONDS, UNITS, create
from webhookplane import CHART, PODS, get

import offline
from environments import fakenodes, helm
from environments.apicall import ApiCalls
from environments.controlplane import ControlPlane
from environments.fakenodeagent import FakeNodeAgent
from environments.testing.planes import control_plane

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def plane() -> Iterator[ControlPlane]:
    """The oldest control plane."""
    with control_plane(offline.OLDEST) as one:
        yield one


@pytest.fixture
async def calls(plane: ControlPlane) -> AsyncIterator[ApiCalls]:
    """An API server with a node of two GPUs, and no pods."""
    async with ApiCalls.to(plane) as session:
        await session.create("/api/v1/nodes", fakenodes.nodes(1, gpus=2, units=UNITS))
        await session.call("DELETE", f"{PODS}?gracePeriodSeconds=0")
        yield session


async def test_kube_scheduler_reads_the_policy_that_the_chart_offers(
    plane: ControlPlane, calls: ApiCalls, tmp_path: Path
) -> None:
    """Until 1.22: with --policy-config-file the cluster's own scheduler calls the extender."""
    values = {
        "image": {"registry": "local"},
        "webhook": {"enabled": False},
        "scheduler": {"mode": "extender"},
        "extender": {"tls": {"enabled": False}},
    }
    await asyncio.to_thread(helm.install, "old", CHART, "old", values, plane.kubeconfig)
    path = "/api/v1/namespaces/old/configmaps/old-gpushare-extender-config"
    text = (await get(calls, path))["data"]["policy.json"]
    async with Running(Source(plane), tmp_path) as running:
        await running.ready()
        address = "http://old-gpushare-extender.old.svc:39999"
        assert address in text
        file = tmp_path / "policy.json"
        file.write_text(text.replace(address, running.url))
        process = await asyncio.to_thread(plane.policy_scheduler, file)
        try:
            async with FakeNodeAgent(calls, UNITS) as kubelet:
                pod = fakenodes.pod("by-policy", 4, scheduler="default-scheduler")
                await create(calls, pod)
                await kubelet.wait(1, seconds=SECONDS)
                assert sorted(kubelet.used.values()) == [4]
        finally:
            await asyncio.to_thread(process.stop)


async def test_the_oldest_scheduler_starts_with_the_profile_of_the_chart(
    plane: ControlPlane, calls: ApiCalls, tmp_path: Path
) -> None:
    """Score plugins have other names there; weights that are given back are read as well."""
    every = dict.fromkeys(("NodeResourcesFit", "ImageLocality", "PodTopologySpread"), 2)
    for name, scheduler in (("plain", {}), ("weighed", {"scoreWeights": every})):
        config = await chart_config(plane, calls, scheduler=scheduler)
        assert config["apiVersion"].endswith("v1beta1")
        async with Running(Source(plane), tmp_path) as running:
            await running.ready()
            placing = scheduling(plane, running, name, config)
            async with placing, FakeNodeAgent(calls, UNITS) as kubelet:
                await create(calls, fakenodes.pod(f"by-{name}", 4, scheduler=name))
                await kubelet.wait(1, seconds=SECONDS)
