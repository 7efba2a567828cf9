"""Claims that kube-scheduler allocates: connected GPUs, shares of two GPUs, other drivers, churn.

``GPUSHARE_CHURN_CLAIMS`` sets the number of claims that are created and deleted at random.
"""

import asyncio
import os
import random
from collections.abc import AsyncIterator
from typing import Any, Final

import claimplane
import msgspec
import pytest
from claimplane import API, CLAIMS, GIB, PODS, claim, pod, read, request, waited
from planes import plane

from environments.apicall import ApiCalls
from environments.claims import results
from environments.consumption import Consumption
from environments.controlplane import ControlPlane
from gpucore.wire.names import CLAIM_DRIVER

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]
__all__ = ["plane"]  # a fixture

CHURN: Final = int(os.environ.get("GPUSHARE_CHURN_CLAIMS", "1000"))
WORKERS: Final = 8
LIVE: Final = 6
"""Claims of one worker at a time, at most."""
NICS: Final = "nics.example.com"
PCIE: Final = "resource.kubernetes.io/pcieRoot"
LINKS: Final = f"{CLAIM_DRIVER}/linkGroup"
UUID: Final = f"{CLAIM_DRIVER}/uuid"
Object = dict[str, Any]


@pytest.fixture
async def calls(plane: ControlPlane) -> AsyncIterator[ApiCalls]:
    """A scheduler, the controller of claims and the classes of two drivers."""
    scheduler = await asyncio.to_thread(plane.scheduler, None, name="default-scheduler")
    controller = await asyncio.to_thread(claimplane.claim_controller, plane)
    try:
        async with ApiCalls.to(plane) as found:
            classes = [claimplane.device_class("gpushare"), claimplane.device_class("nics", NICS)]
            await found.create(f"{API}/deviceclasses", classes)
            yield found
            for path in (f"{PODS}?gracePeriodSeconds=0", CLAIMS):
                await found.call("DELETE", path)
            await waited(found, CLAIMS, lambda listed: not listed["items"])
            for path in (f"{API}/resourceslices", "/api/v1/nodes"):
                await found.call("DELETE", path)
    finally:
        controller.stop()
        scheduler.stop()


async def offer(calls: ApiCalls, name: str, *devices: Any) -> None:
    """A node with these GPUs."""
    await calls.create("/api/v1/nodes", [claimplane.node(name)])
    await calls.create(f"{API}/resourceslices", [claimplane.gpus(name, devices)])


async def use(calls: ApiCalls, found: Object) -> None:
    """A claim and a pod that uses it."""
    await calls.create(CLAIMS, [found])
    await calls.create(PODS, [pod(found["metadata"]["name"])])


async def devices(calls: ApiCalls, name: str) -> list[str]:
    """The devices that a claim is allocated."""
    found = await waited(calls, f"{CLAIMS}/{name}", results)
    return sorted(each["device"] for each in results(found))


def is_refused(found: Object) -> bool:
    """kube-scheduler found no node for the pod."""
    conditions = found.get("status", {}).get("conditions", ())
    return any(each.get("reason") == "Unschedulable" for each in conditions)


async def test_exclusive_gpus_of_one_claim_are_connected(calls: ApiCalls) -> None:
    """MatchAttribute on the link group passes over GPUs that NVLink does not connect."""
    groups = ("", "nvlink-1", "nvlink-2", "nvlink-2", "nvlink-1")
    await offer(calls, "links", *(claimplane.gpu(i, link_group=g) for i, g in enumerate(groups)))
    rule = {"matchAttribute": LINKS}
    await use(calls, claim("pair", request(count=2), constraints=[rule]))
    assert await devices(calls, "pair") == ["gpu-1", "gpu-4"]
    await use(calls, claim("second", request(count=2), constraints=[rule]))
    assert await devices(calls, "second") == ["gpu-2", "gpu-3"]
    await use(calls, claim("third", request(count=2), constraints=[rule]))
    await waited(calls, f"{PODS}/third", is_refused)


async def test_one_share_takes_memory_of_two_different_gpus(calls: ApiCalls) -> None:
    """DistinctAttribute on the UUID; without it both parts may come from one GPU."""
    await offer(calls, "two", claimplane.gpu(0), claimplane.gpu(1))
    rule = {"distinctAttribute": UUID}
    await use(calls, claim("apart", request(gib=6, count=2), constraints=[rule]))
    assert await devices(calls, "apart") == ["gpu-0", "gpu-1"]
    await use(calls, claim("large", request(gib=GIB - 6)))
    assert await devices(calls, "large") == ["gpu-0"]
    await use(calls, claim("again", request(gib=6, count=2), constraints=[rule]))
    await waited(calls, f"{PODS}/again", is_refused)


def nics(node: str, *roots: str) -> Object:
    """The ResourceSlice of a stand-in driver that publishes network devices."""
    listed = [
        {"name": f"nic-{number}", "attributes": {PCIE: {"string": root}}}
        for number, root in enumerate(roots)
    ]
    pool = {"name": node, "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": NICS, "nodeName": node, "pool": pool, "devices": listed}
    head = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice"}
    return head | {"metadata": {"name": f"{node}-nics"}, "spec": spec}


async def test_a_share_and_a_device_of_another_driver_have_one_pcie_root(calls: ApiCalls) -> None:
    """In one claim, by the standard attribute; where no NIC is beside a GPU with room it waits."""
    roots = ("pci0000:00", "pci0000:80")
    await offer(calls, "nic", *(claimplane.gpu(i, pcie_root=r) for i, r in enumerate(roots)))
    await calls.create(f"{API}/resourceslices", [nics("nic", roots[1], roots[1])])
    pair = (request(gib=6), request("nic", of="nics"))
    rule = {"matchAttribute": PCIE}
    for name, nic in (("near", "nic-0"), ("next", "nic-1")):
        await use(calls, claim(name, *pair, constraints=[rule]))
        assert await devices(calls, name) == ["gpu-1", nic]
    await use(calls, claim("none", *pair, constraints=[rule]))
    await waited(calls, f"{PODS}/none", is_refused)
    await use(calls, claim("alone", request(gib=6)))
    assert await devices(calls, "alone") == ["gpu-0"]


async def follow(calls: ApiCalls, version: str, consumed: Consumption) -> None:
    """Every event of all claims, for ever."""
    path = f"{CLAIMS}?watch=1&resourceVersion={version}"
    async with calls.session.get(path, timeout=None) as stream:  # type: ignore[arg-type]
        async for line in stream.content:
            consumed.take(msgspec.json.decode(line))


async def churn(calls: ApiCalls, number: int, count: int) -> None:
    """Create so many claims with pods, delete others in between, and all in the end."""
    chance, live = random.Random(number), list[str]()
    created = 0
    while created < count or live:
        if created < count and len(live) < LIVE and chance.random() < 0.6:
            name = f"churn-{number}-{created}"
            await use(calls, claim(name, request(gib=chance.randint(1, GIB))))
            live.append(name)
            created += 1
        elif live:
            name = live.pop(chance.randrange(len(live)))
            if chance.random() < 0.7:
                await waited(calls, f"{PODS}/{name}", settled)
            await calls.call("DELETE", f"{PODS}/{name}?gracePeriodSeconds=0")
            await calls.call("DELETE", f"{CLAIMS}/{name}")


def settled(found: Object) -> bool:
    """The scheduler has tried the pod."""
    return bool(found["spec"].get("nodeName")) or is_refused(found)


async def test_no_gpu_is_over_its_capacity_while_claims_come_and_go(calls: ApiCalls) -> None:
    """At every event of a watch the claims of a GPU consume at most what it has."""
    for number in range(4):
        await offer(calls, f"churn-{number}", claimplane.gpu(0), claimplane.gpu(1))
    consumed = Consumption()
    version = (await read(calls, CLAIMS))["metadata"]["resourceVersion"]
    watching = asyncio.create_task(follow(calls, version, consumed))
    try:
        await asyncio.gather(*(churn(calls, number, CHURN // WORKERS) for number in range(WORKERS)))
        async with asyncio.timeout(claimplane.SECONDS):
            while consumed.total:  # noqa: ASYNC110 - another process
                await asyncio.sleep(0.05)
        assert not watching.done()
    finally:
        watching.cancel()
    print(
        f"{CHURN} claims, {len(consumed.allocated)} of them allocated; {consumed.events} events,"
        f" at most {max(consumed.most.values())} of {GIB} GiB"
    )
    assert max(consumed.most.values()) <= GIB
    assert len(consumed.allocated) > CHURN // 4
