"""What the extender costs while no pod comes: on its own, and with the heartbeats of kubelets.

kubelet writes the status of its node every five minutes although nothing changed
(``nodeStatusReportFrequency``); the Leases in between are not watched.
"""

import asyncio
import itertools
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final

from bench.meter import spent
from bench.subject import Subject
from environments.apicall import ApiCalls
from environments.controlplane import ControlPlane

SECONDS: Final = 60
SETTLE_SECONDS: Final = 20
REPORT_SECONDS: Final = 300
STRATEGIC: Final = "application/strategic-merge-patch+json"


async def measure(plane: ControlPlane, calls: ApiCalls, nodes: int) -> Mapping[str, float]:
    """Percent of a core."""
    subject = await asyncio.to_thread(Subject.ours, plane)
    try:
        await asyncio.sleep(SETTLE_SECONDS)
        assert subject.process is not None
        pid = subject.process.pid
        begin = spent(pid)
        await asyncio.sleep(SECONDS)
        alone = spent(pid) - begin
        begin = spent(pid)
        await _heartbeats(calls, nodes)
        beats = spent(pid) - begin
    finally:
        subject.stop()
    return {
        "nothing changes": round(100 * alone / SECONDS, 2),
        "heartbeats": round(100 * beats / SECONDS, 2),
    }


async def _heartbeats(calls: ApiCalls, nodes: int) -> None:
    begin, pause = time.monotonic(), REPORT_SECONDS / nodes
    for number in itertools.count():
        due = number * pause
        if due > SECONDS:
            return
        await asyncio.sleep(max(0.0, begin + due - time.monotonic()))
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        condition = {"type": "Ready", "status": "True", "lastHeartbeatTime": now}
        path = f"/api/v1/nodes/node-{number % nodes:05}/status"
        await calls.call("PATCH", path, {"status": {"conditions": [condition]}}, kind=STRATEGIC)
