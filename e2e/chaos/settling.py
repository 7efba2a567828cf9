"""A moment without kills: all pods run, and extender and kubelets agree on who has what."""

import asyncio
import time
from collections import Counter
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import msgspec

from chaos.grants import NodeGrants
from chaos.invariants import CORE, EXCLUSIVE, MEM, gpu_of
from chaos.load import PodLoad
from chaos.rig import Rig

SETTLE_SECONDS: Final = 60.0
POLL_SECONDS: Final = 0.3
PREFIX: Final = "load-"


class GpuHolder(NamedTuple):
    """What a pod has of a GPU, by the extender or by its kubelet."""

    node: str
    gpu: str
    pod: str
    units: int
    core: int
    exclusive: bool


def offers_all(node: Mapping[str, Any], rig: Rig, *, after: str) -> bool:
    """Whether the node's allocatable has every device of its capacity again.

    Args:
        node: the object.
        after: its generation before a kill.
    """
    status = node["status"]
    return rig.generation(node) != after and all(
        int(status["capacity"].get(name, 0)) > 0
        and status["allocatable"].get(name) == status["capacity"].get(name)
        for name in (MEM, CORE, EXCLUSIVE)
    )


async def settled(rig: Rig, load: PodLoad) -> list[str]:
    """Wait until all agrees; sentences about what does not after the deadline."""
    load.growing = False
    end = time.monotonic() + SETTLE_SECONDS
    try:
        while faults := await asyncio.to_thread(differences, rig, load):
            if time.monotonic() > end:
                return faults
            await asyncio.sleep(POLL_SECONDS)
    finally:
        load.growing = True
    return []


def differences(rig: Rig, load: PodLoad) -> list[str]:
    """What is not as it has to be once nothing changes any more."""
    faults = [f"{name} does not run: {_pod_state(load.pods[name])}" for name in load.unsettled]
    grants = rig.grants()
    running = {name for name, pod in load.pods.items() if pod["status"].get("phase") == "Running"}
    granted = {
        pod.name
        for held in grants.values()
        for pod in held.pods.values()
        if pod.started and pod.name.startswith(PREFIX)
    }
    faults += [f"{name} runs without devices" for name in sorted(running - granted)]
    faults += [f"{name} has devices but does not run" for name in sorted(granted - running)]
    text = rig.extender_nodes()
    if text is None:
        return [*faults, "the extender does not answer"]
    known, held = extender_holders(text), kubelet_holders(grants)
    faults += [f"only the extender has {one}" for one in sorted(known - held)]
    faults += [f"only the kubelet has {one}" for one in sorted(held - known)]
    return faults


def _pod_state(pod: Mapping[str, Any]) -> str:
    """How far a pod came: its node and phase, and what the scheduler wrote last."""
    meta, spec, status = pod["metadata"], pod["spec"], pod["status"]
    deleted = ", deleted at " + meta["deletionTimestamp"] if "deletionTimestamp" in meta else ""
    conditions = {one["type"]: one for one in status.get("conditions", ())}
    scheduled = conditions.get("PodScheduled", {}).get("message", "no message of the scheduler")
    place = f"on {spec['nodeName']}" if spec.get("nodeName") else f"without a node, {scheduled}"
    return f"{status.get('phase', 'no phase')} {place}{deleted}"


def extender_holders(text: str) -> set[GpuHolder]:
    """Who has what by the extender's ledger, from its ``/api/v1/nodes``."""
    return {
        GpuHolder(
            node["name"], gpu["uuid"], pod["name"], pod["units"], pod["core"], pod["exclusive"]
        )
        for node in msgspec.json.decode(text)["nodes"]
        for gpu in node["gpus"]
        for pod in gpu["pods"]
    }


def kubelet_holders(grants: Mapping[str, NodeGrants]) -> set[GpuHolder]:
    """Who has what by the devices of the containers."""
    return {
        GpuHolder(node, gpu, pod.name, amounts[MEM], amounts[CORE], bool(amounts[EXCLUSIVE]))
        for node, held in grants.items()
        for pod in held.pods.values()
        for gpu, amounts in _by_gpu(pod.containers.values()).items()
    }


def _by_gpu(containers: Any) -> dict[str, Counter[str]]:
    found: dict[str, Counter[str]] = {}
    for container in containers:
        for resource, ids in container.ids.items():
            for one in ids:
                found.setdefault(gpu_of(one), Counter())[resource] += 1
    return found
