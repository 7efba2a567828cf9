"""Evictions of idle pods on a real API server, with the rights and the policy of the chart.

The test plays the device plugin, whose reports the API server fetches, and the time of the command.
"""

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import pytest
from chartconfig import SPACE, chart_config
from fakeplugin import serving
from planes import plane
from test_controlplane_defrag import BUDGETS, OWNER, PODS, held, read

from environments import fakenodes
from environments.apicall import MERGE_PATCH, ApiCalls
from environments.controlplane import ControlPlane

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]
__all__ = ["plane"]  # a fixture

Object = dict[str, Any]
SECONDS: Final = 60
ACCOUNT: Final = f"system:serviceaccount:{SPACE}:{SPACE}-gpushare-idle"
NAMES: Final = ("kept", "idle", "allowed")
LATER: Final = """
import sys
from datetime import UTC, datetime, timedelta
from gpuinspect.terminal import ages
ahead = timedelta(hours=float(sys.argv.pop(1)))
ages.now = lambda: datetime.now(UTC) + ahead
from gpuinspect.commands.main import main
main()
"""
"""The command, so many hours ahead."""


class Reports:
    """A device plugin that reports the pods of its node as idle since now.

    Attributes:
        hours: that have passed.
    """

    def __init__(self) -> None:
        self.hours = 0.0
        self.since = datetime.now(UTC)

    def document(self) -> Object:
        """The reply to ``/usage``."""
        at = datetime.now(UTC) + timedelta(hours=self.hours)
        gpus = [
            {"index": i, "uuid": f"GPU-node-00000-{i}", "usedBytes": 0, "unattributedBytes": 0}
            | {"pods": [self._row(name)]}
            for i, name in enumerate(NAMES)
        ]
        known = {"apiVersion": "gpushare/v1", "kind": "NodeUsage", "node": "node-00000"}
        return {**known, "measuredAt": at.timestamp(), "gpus": gpus}

    def _row(self, name: str) -> Object:
        named = {"namespace": "default", "name": name, "containers": ["main"]}
        return {**named, "usedBytes": 0, "idleSince": self.since.timestamp()}


@pytest.fixture
async def cluster(plane: ControlPlane) -> AsyncIterator[tuple[ApiCalls, Reports]]:
    """A node with idle pods and a plugin, and the chart with its CronJob."""
    async with ApiCalls.to(plane) as calls:
        await calls.create("/api/v1/nodes", fakenodes.nodes(1, gpus=len(NAMES), units=16))
        pods = [held(n, 0, i, 8, ownerReferences=[OWNER]) for i, n in enumerate(NAMES)]
        pods[-1]["metadata"]["labels"]["gpushare/idle-allowed"] = "true"
        await calls.create(PODS, pods)
        reports = Reports()  # later, since what was measured before a pod's creation is unknown
        for name in NAMES:
            running = {"status": {"phase": "Running"}}
            await calls.call("PATCH", f"{PODS}/{name}/status", running, kind=MERGE_PATCH)
        job = {"schedule": "30 * * * *", "evict": True}
        await chart_config(plane, calls, idle=job, admissionPolicy={"enabled": True})
        with serving({"/usage": reports.document}) as plugin:
            pods = f"/api/v1/namespaces/{SPACE}/pods"
            await calls.call("POST", pods, plugin.pod("node-00000"))
            status = plugin.status()
            await calls.call("PATCH", f"{pods}/plugin/status", status, kind=MERGE_PATCH)
            yield calls, reports


async def run(plane: ControlPlane, reports: Reports, hours: float) -> dict[str, str]:
    """What became of each pod in a run so many hours ahead, with the rights of the CronJob."""
    reports.hours = hours
    command = [sys.executable, "-c", LATER, str(hours), "idle", "-A", "-o", "json", "--evict"]
    command += [f"--kubeconfig={plane.kubeconfig}", f"--as={ACCOUNT}", "--for=12h", "--grace=24h"]
    command += [f"--plugin-namespace={SPACE}", f"--lease={SPACE}/{SPACE}-gpushare-idle"]
    done = await asyncio.to_thread(
        subprocess.run, command, capture_output=True, text=True, timeout=SECONDS, check=False
    )
    assert done.returncode == 0, done.stderr
    return {each["name"]: each["outcome"] for each in json.loads(done.stdout)["items"]}


def outcomes(kept: str, idle: str) -> dict[str, str]:
    """Of a run that never touches the pod with the label."""
    return {"kept": kept, "idle": idle, "allowed": "spared"}


async def test_an_idle_pod_has_notice_and_is_evicted_unless_a_budget_or_its_label_keeps_it(
    plane: ControlPlane, cluster: tuple[ApiCalls, Reports]
) -> None:
    """Notice, the grace time, the eviction of one and the refusal of the other."""
    calls, reports = cluster
    spec = {"minAvailable": 1, "selector": {"matchLabels": {"app": "kept"}}}
    budget = {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "spec": spec}
    await calls.call("POST", BUDGETS, budget | {"metadata": {"name": "keep"}})
    assert await run(plane, reports, 13) == outcomes("noticed", "noticed")
    notice = (await read(calls, f"{PODS}/idle"))["metadata"]["annotations"]["gpushare/idle-notice"]
    assert json.loads(notice)["evictAfter"] - json.loads(notice)["noticedAt"] == 24 * 3600
    assert await run(plane, reports, 36) == outcomes("waits", "waits")
    await calls.call("GET", f"{PODS}/idle")

    assert await run(plane, reports, 38) == outcomes("refused", "evicted")
    await calls.call("GET", f"{PODS}/idle", fine=(404,))
    for name in ("kept", "allowed"):
        await calls.call("GET", f"{PODS}/{name}")
    events = (await read(calls, "/api/v1/namespaces/default/events"))["items"]
    seen = {(each["reason"], each["involvedObject"].get("name")) for each in events}
    pods = {each for each in seen if each[1] in NAMES}
    notices = {("GpuIdleNotice", name) for name in ("kept", "idle")}
    assert pods == {*notices, ("GpuIdlePodEvicted", "idle")}
