"""Kueue with GPU shares on a real control plane: two teams, borrowing, reclaim, preemption.

Kueue is compiled from its Go module, minutes the first time, so that these cases run on demand:
``make e2e MARK=ondemand CASES=services/extender/tests/test_controlplane_kueue.py``.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import claimside
import pytest
from claimside import create, read, waited
from planes import Source, control_plane
from running import Running, until

from environments import fakenodes
from environments.apicall import MERGE_PATCH, ApiCalls
from environments.controlplane import ControlPlane
from environments.kueue import Kueue
from environments.reader import plain_terminal
from gpukube.testing.certificates import make_certificate
from guides.blocks import GuideTarget, found
from guides.session import GuideSession
from host.errors import SetupError
from host.testing.lacking import lacking

pytestmark = [pytest.mark.e2e, pytest.mark.ondemand, pytest.mark.timeout(900)]

Object = dict[str, Any]
ROOT = Path(__file__).parents[3]
GPU_MEM = "aliyun.com/gpu-mem"
CLAIMS = "gpushare.io/claims"
UNITS = 16
QUEUES = "/apis/kueue.x-k8s.io/v1beta2"
QUEUE_LABEL = "kueue.x-k8s.io/queue-name"
CONTROLLERS = (
    "job-controller",
    "resourceclaim-controller",
    "resourcequota-controller",
    "garbage-collector-controller",
)


@dataclass(frozen=True)
class Cohort:
    """Two teams that lend quota to each other.

    Attributes:
        scheduler: of their pods.
        counted: what their quota is of.
        claims: whether the webhook turns their requests into ResourceClaims.
    """

    name: str
    scheduler: str
    counted: str = GPU_MEM
    claims: bool = False

    @property
    def teams(self) -> tuple[str, str]:
        """Namespaces, each with a queue of its own."""
        return f"{self.name}-a", f"{self.name}-b"


SHARES = Cohort("shares", "gpushare-scheduler")
PRIORITIES = Cohort("priorities", "gpushare-scheduler")
CONVERTED = Cohort("converted", "default-scheduler", claims=True)
COUNTED = Cohort("counted", "default-scheduler", counted=CLAIMS)


@pytest.fixture(scope="module")
def kueue_plane() -> Iterator[ControlPlane]:
    """A control plane with Kueue and the controllers of jobs, claims and quotas."""
    with control_plane() as plane:
        plane.controllers(*CONTROLLERS)
        try:
            Kueue(plane, {CLAIMS: ["gpushare"]}).start()
        except SetupError as reason:
            lacking("no Kueue", reason)
        yield plane


@contextmanager
def schedulers(plane: ControlPlane, url: str) -> Iterator[None]:
    """Ours with the extender, and one without for claims."""
    running = [plane.scheduler(f"{url}/gpushare-scheduler")]
    try:
        running.append(plane.scheduler(None, name="default-scheduler"))
        yield
    finally:
        for one in running:
            one.stop()


@pytest.fixture
async def stack(kueue_plane: ControlPlane, tmp_path: Path) -> AsyncIterator[tuple[ApiCalls, str]]:
    """The extender with its webhook, two nodes of one GPU and one with two GPUs as claims."""
    folder = tmp_path / "certificates"
    make_certificate(folder, "webhook")
    options: Object = {"webhook_port": 0, "webhook_certificates": folder}
    options |= {"claims": True, "claims_convert": True}
    async with (
        ApiCalls.to(kueue_plane) as calls,
        Running(Source(kueue_plane), tmp_path, **options) as extender,
    ):
        await extender.ready()
        admission = extender.service.listeners.admission
        await until("the webhook listens", lambda: admission.started)
        await calls.create("/api/v1/nodes", fakenodes.nodes(2, gpus=1, units=UNITS))
        await claimside.offer(calls, "claims-1", gpus=2, gib=UNITS)
        bundle = (folder / "tls.crt").read_bytes()
        await claimside.convert(calls, admission.port, bundle, CONVERTED.teams)
        entered = schedulers(kueue_plane, extender.url)
        await asyncio.to_thread(entered.__enter__)
        try:
            yield calls, extender.url
        finally:
            await asyncio.to_thread(entered.__exit__, None, None, None)
            await calls.call("DELETE", f"{claimside.HOOKS}/claims")


async def open_queues(calls: ApiCalls, cohort: Cohort, nominal: int) -> None:
    """A ClusterQueue for each team, and its namespace."""
    await calls.create(f"{QUEUES}/resourceflavors", [of_kueue("ResourceFlavor", "gpus", {})])
    for team in cohort.teams:
        await calls.create("/api/v1/namespaces", [{"metadata": {"name": team}}])
        counted = {"name": cohort.counted, "nominalQuota": str(nominal)}
        group = {
            "coveredResources": [cohort.counted],
            "flavors": [{"name": "gpus", "resources": [counted]}],
        }
        spec = {
            "cohortName": cohort.name,
            "namespaceSelector": {},
            "resourceGroups": [group],
            "preemption": {"reclaimWithinCohort": "Any", "withinClusterQueue": "LowerPriority"},
        }
        await calls.create(f"{QUEUES}/clusterqueues", [of_kueue("ClusterQueue", team, spec)])
        queue = of_kueue("LocalQueue", "gpus", {"clusterQueue": team})
        await calls.create(f"{QUEUES}/namespaces/{team}/localqueues", [queue])


def of_kueue(kind: str, name: str, spec: Object) -> Object:
    """An object of Kueue's API."""
    head = {"apiVersion": QUEUES.removeprefix("/apis/"), "kind": kind}
    return head | {"metadata": {"name": name}, "spec": spec}


def job(cohort: Cohort, name: str, units: int, **more: Any) -> Object:
    """A job of one pod, which never ends by itself."""
    container: Object = {"name": "main", "image": "none", "resources": {}}
    spec: Object = {
        "schedulerName": cohort.scheduler,
        "terminationGracePeriodSeconds": 0,
        "restartPolicy": "Never",
        "containers": [container],
        **more,
    }
    if cohort is COUNTED:
        container["resources"]["claims"] = [{"name": "gpu"}]
        template = f"share-{units}"
        spec["resourceClaims"] = [{"name": "gpu", "resourceClaimTemplateName": template}]
    else:
        container["resources"]["limits"] = {GPU_MEM: str(units)}
    metadata = {"name": name, "labels": {QUEUE_LABEL: "gpus"}}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": metadata,
        "spec": {"backoffLimit": 20, "template": {"spec": spec}},
    }


async def submit(calls: ApiCalls, cohort: Cohort, team: str, *jobs: tuple[str, int]) -> None:
    """Jobs of a team, one after the other."""
    for name, units in jobs:
        await create(calls, f"/apis/batch/v1/namespaces/{team}/jobs", job(cohort, name, units))


async def bound(calls: ApiCalls, team: str) -> set[str]:
    """Jobs of a team whose pods have a node."""
    pods = (await read(calls, f"/api/v1/namespaces/{team}/pods"))["items"]
    live = [pod for pod in pods if "deletionTimestamp" not in pod["metadata"]]
    return {
        pod["metadata"]["labels"]["batch.kubernetes.io/job-name"]
        for pod in live
        if pod["spec"].get("nodeName")
    }


async def until_bound(calls: ApiCalls, team: str, count: int) -> set[str]:
    """Jobs with a node, once there are exactly so many."""
    async with asyncio.timeout(claimside.SECONDS):
        while len(jobs := await bound(calls, team)) != count:  # noqa: ASYNC110 - processes
            await asyncio.sleep(0.1)
    return jobs


async def condition(calls: ApiCalls, team: str, name: str, kind: str, reason: str = "") -> str:
    """The message of a condition of the job's workload, once it is there with that reason."""

    def message_of(found: Object) -> str:
        for item in found["items"]:
            owner = item["metadata"].get("ownerReferences", [{}])[0].get("name")
            for one in item.get("status", {}).get("conditions", ()) if owner == name else ():
                if one["type"] == kind and reason in one["reason"]:
                    return str(one["message"])
        return ""

    path = f"{QUEUES}/namespaces/{team}/workloads"
    return message_of(await waited(calls, path, message_of))


async def end(calls: ApiCalls, cohort: Cohort) -> None:
    """Remove the jobs of both teams and wait until their pods are gone."""
    for team in cohort.teams:
        path = f"/apis/batch/v1/namespaces/{team}/jobs"
        for item in (await read(calls, path))["items"]:
            name = item["metadata"]["name"]
            suspend = {"spec": {"suspend": True}, "metadata": {"labels": {QUEUE_LABEL: None}}}
            await calls.call("PATCH", f"{path}/{name}", suspend, kind=MERGE_PATCH)
            await calls.call("DELETE", f"{path}/{name}?propagationPolicy=Background")
        await calls.call("DELETE", f"/api/v1/namespaces/{team}/pods?gracePeriodSeconds=0")


@pytest.mark.parametrize("cohort", [SHARES, CONVERTED], ids=lambda cohort: cohort.name)
async def test_a_team_borrows_and_the_owner_gets_its_quota_back(
    stack: tuple[ApiCalls, str], cohort: Cohort
) -> None:
    """Quota is in units, also where the webhook turns the requests of pods into claims."""
    calls, _ = stack
    await open_queues(calls, cohort, UNITS)
    borrower, owner = cohort.teams
    await submit(calls, cohort, borrower, ("one", 8), ("two", 8), ("three", 8))
    assert await until_bound(calls, borrower, 3) == {"one", "two", "three"}
    await submit(calls, cohort, borrower, ("large", 16))
    message = await condition(calls, borrower, "large", "QuotaReserved")
    assert f"insufficient unused quota for {GPU_MEM} in flavor gpus, 8 more needed" in message
    await submit(calls, cohort, owner, ("four", 8), ("five", 8))
    assert await until_bound(calls, owner, 2) == {"four", "five"}
    left = await until_bound(calls, borrower, 2)
    (evicted,) = {"one", "two", "three"} - left
    message = await condition(calls, borrower, evicted, "Preempted", "InCohortReclamation")
    assert "reclamation within the cohort" in message
    await end(calls, cohort)


async def test_a_job_that_fits_the_quota_and_no_gpu_preempts_by_its_priority(
    stack: tuple[ApiCalls, str],
) -> None:
    """Kueue compares totals; the extender names the one pod whose GPU then has room."""
    calls, _ = stack
    await open_queues(calls, PRIORITIES, UNITS)
    first, second = PRIORITIES.teams
    important = {"metadata": {"name": "important"}, "value": 1000}
    await calls.create("/apis/scheduling.k8s.io/v1/priorityclasses", [important])
    await submit(calls, PRIORITIES, first, ("left", 10), ("right", 10))
    await until_bound(calls, first, 2)
    urgent = job(PRIORITIES, "urgent", 12, priorityClassName="important")
    await create(calls, f"/apis/batch/v1/namespaces/{second}/jobs", urgent)
    assert await until_bound(calls, second, 1) == {"urgent"}
    assert len(await until_bound(calls, first, 1)) == 1
    await end(calls, PRIORITIES)


async def test_claims_of_a_class_are_counted_where_pods_name_templates(
    stack: tuple[ApiCalls, str],
) -> None:
    """Kueue counts the devices of a DeviceClass: a share is one, whatever its size."""
    calls, _ = stack
    await open_queues(calls, COUNTED, 1)
    borrower, owner = COUNTED.teams
    for team in COUNTED.teams:
        exactly = {"deviceClassName": "gpushare", "capacity": {"requests": {"memory": "7Gi"}}}
        spec = {"spec": {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}}}
        template = claimside.kind("ResourceClaimTemplate", "share-7", spec)
        path = f"{claimside.API}/namespaces/{team}/resourceclaimtemplates"
        await calls.create(path, [template])
    await submit(calls, COUNTED, borrower, ("one", 7), ("two", 7))
    await until_bound(calls, borrower, 2)
    await submit(calls, COUNTED, borrower, ("three", 7))
    message = await condition(calls, borrower, "three", "QuotaReserved")
    assert f"insufficient unused quota for {CLAIMS} in flavor gpus, 1 more needed" in message
    await submit(calls, COUNTED, owner, ("four", 7))
    await until_bound(calls, owner, 1)
    await until_bound(calls, borrower, 1)
    await end(calls, COUNTED)


@pytest.mark.usefixtures("stack")
async def test_the_guide_does_what_it_shows(kueue_plane: ControlPlane, tmp_path: Path) -> None:
    """Every command of the page about Kueue."""
    (guide,) = found(ROOT / "docs", GuideTarget.KUEUE)
    environment = plain_terminal(kueue_plane.kubectl, tmp_path)
    session = GuideSession(tmp_path, environment=environment, patience_s=60)
    await asyncio.to_thread(session.follow, guide)
