"""Results of ``gpushare verify`` on the plugin's pod become metrics."""

import asyncio
import json
from typing import Any

from prometheus_client import REGISTRY

from gpucore.model import Gpu, Inventory
from gpucore.node.grant import GrantPolicy
from gpucore.units import GpuIndex, GpuUuid
from gpucore.wire.lists import decode_pods
from gpudeviceplugin.node.verification import VerificationMetrics
from gpudeviceplugin.state import NodeState
from gpukube.testing.waiting import until

UID = "uid-plugin"


def pod(uid: str, verified: Any) -> dict[str, Any]:
    """A pod with the annotation."""
    text = verified if isinstance(verified, str) else json.dumps(verified)
    meta = {"name": uid, "namespace": "a", "uid": uid, "annotations": {"gpushare/verified": text}}
    return {"metadata": meta, "spec": {"nodeName": "n", "containers": []}, "status": {}}


def state_of(*pods: dict[str, Any]) -> NodeState:
    """A node with these pods."""
    state = NodeState(GrantPolicy())
    body = {"metadata": {"resourceVersion": "1"}, "items": list(pods)}
    state.on_replace(decode_pods(json.dumps(body).encode()).items)
    return state


def row(gpu: str, name: str) -> float | None:
    """The sample of a row."""
    return REGISTRY.get_sample_value("gpushare_verify_row", {"gpu": gpu, "row": name})


def when() -> float | None:
    """The time of the last run."""
    return REGISTRY.get_sample_value("gpushare_verify_timestamp_seconds")


FOUND = {"at": 100, "gpus": {"0": {"share": "pass", "memory": "fail", "burst": "skip"}}}


def test_rows_are_published_and_those_not_measured_are_absent() -> None:
    """1 where the property holds, 0 where it failed."""
    VerificationMetrics(state_of(pod(UID, FOUND)), UID).show()
    assert (row("0", "share"), row("0", "memory"), row("0", "burst")) == (1, 0, None)
    assert when() == 100


def test_pods_of_others_publish_nothing() -> None:
    """Any user may annotate a pod of theirs."""
    state = state_of(pod("uid-theirs", FOUND))
    VerificationMetrics(state, UID).show()
    shown = VerificationMetrics(state_of(pod(UID, FOUND)), UID)
    shown.show()
    assert row("0", "memory") == 0


def test_results_that_go_leave_no_series() -> None:
    """Also where the annotation cannot be read any more."""
    state = state_of(pod(UID, FOUND))
    metrics = VerificationMetrics(state, UID)
    metrics.show()
    body = {"metadata": {"resourceVersion": "2"}, "items": [pod(UID, "no json")]}
    state.on_replace(decode_pods(json.dumps(body).encode()).items)
    metrics.show()
    assert row("0", "memory") is None
    assert when() == 0


def gpus(*uuids: str) -> Inventory:
    """The GPUs of a node in their order."""
    return Inventory(gpus=tuple(Gpu(GpuIndex(i), GpuUuid(u), 15) for i, u in enumerate(uuids)))


async def test_results_stay_with_their_gpu_when_the_order_changes() -> None:
    """A reboot, MIG or a GPU that is taken out renumbers the others."""
    found = {"at": 100, "gpus": {"GPU-a": {"memory": "pass"}, "GPU-b": {"memory": "fail"}}}
    state = state_of(pod(UID, found))
    state.equip(gpus("GPU-a", "GPU-b"))
    following = asyncio.create_task(VerificationMetrics(state, UID).run())
    await until("the second GPU has failed", lambda: row("1", "memory") == 0)
    assert row("0", "memory") == 1
    state.equip(gpus("GPU-b"))
    await until("it is the first one", lambda: row("0", "memory") == 0)
    assert row("1", "memory") is None
    following.cancel()
