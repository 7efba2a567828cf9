"""Events on pods: who records them, about what, and how they are counted."""

import asyncio
import json
from pathlib import Path

from objects import pod

from gpucore.wire.pod.spec import decode_pod
from gpuextender import metrics
from gpuextender.scheduling.binding import Recorder
from gpukube.client import HttpKubeClient
from gpukube.testing.apiserver import FakeApiServer

POD = decode_pod(json.dumps(pod("p", 2, uid="u")).encode())


async def test_an_event_names_its_pod_and_its_recorder(
    cluster: FakeApiServer, tmp_path: Path
) -> None:
    """Warnings are distinguished from what went as it should, and each fate is counted."""
    before = metrics.EVENTS.labels("written")._value.get()
    path = cluster.write_kubeconfig(tmp_path)
    async with await HttpKubeClient.connect(path, user_agent="test") as api:
        recorder = Recorder(api, instance="replica-1")
        task = asyncio.create_task(recorder.run())
        recorder.note(POD, "GpuPlaced", "Placed: GPU 0")
        recorder.warn(POD, "GpuPlacementFailed", "no room")
        await recorder.flush(seconds=45)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    placed, failed = cluster.all("events")
    assert (placed["type"], failed["type"]) == ("Normal", "Warning")
    assert placed["involvedObject"] == {
        "apiVersion": "v1",
        "kind": "Pod",
        "namespace": "default",
        "name": "p",
        "uid": "u",
    }
    assert placed["source"] == {"component": "gpushare-extender"}
    assert placed["reportingInstance"] == "replica-1"
    assert metrics.EVENTS.labels("written")._value.get() == before + 2
