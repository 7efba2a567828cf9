"""Clusters for defragmentation in one line a pod."""

from collections.abc import Iterable

import msgspec
from corebuilders import ledger, make_gpus, pod, pod_request, share_node

from gpucore.defrag.pods import DefragPod, DefragState
from gpucore.kubescheduler.candidate_nodes import CandidateNodes
from gpucore.model import Placement
from gpucore.scheduling.candidates import candidates_of
from gpucore.steps import complete
from gpucore.units import GpuIndex, NodeName, PodUid
from gpucore.wire.names import DEFAULT_NAMES
from gpucore.wire.pod.placements import annotations_of
from gpucore.wire.pod.spec import Pod

GPUS = make_gpus(16, 16)


class HeldPod(DefragPod, frozen=True):
    """A bound pod and the index of its GPU."""

    gpu: int = 0


def held(name: str, units: int, node: str, gpu: int, **fields: object) -> HeldPod:
    """A running pod of its own controller, which may be moved unless a field differs."""
    made = HeldPod(
        PodUid(name),
        "team",
        name,
        pod_request(pod(name, units)),
        gpu=gpu,
        owner=f"rs-{name}",
        node=NodeName(node),
        creation=f"2026-01-0{gpu + 1}T00:00:00Z",
    )
    return msgspec.structs.replace(made, **fields)


def waits(name: str, units: int, **fields: object) -> DefragPod:
    """A pod that waits for a share, or for exclusive GPUs with ``gpus``."""
    gpus = int(str(fields.pop("gpus", 0)))
    request = pod_request(pod(name, units, gpus=gpus))
    made = DefragPod(PodUid(name), "team", name, request, creation="2026-01-05T00:00:00Z")
    return msgspec.structs.replace(made, **fields)


def state(nodes: Iterable[str], *pods: DefragPod) -> DefragState:
    """Nodes with two GPUs of 16 units, and these pods."""
    objects = [share_node(name, GPUS, whole=True) for name in nodes]
    objects = [msgspec.structs.replace(node, ready=True) for node in objects]
    bound = [_bound(one) for one in pods if isinstance(one, HeldPod)]
    book = ledger(*objects, *bound)
    known = CandidateNodes(DEFAULT_NAMES, objects, bound)
    owners: dict[str, int] = {}
    for one in pods:
        if one.owner:
            owners[one.owner] = owners.get(one.owner, 0) + 1
    return DefragState(
        complete(candidates_of(book, known, copies=False)),
        tuple(sorted((one for one in pods if not one.node), key=lambda one: one.queue_key)),
        {one.uid: one for one in pods if one.node},
        owners,
    )


def _bound(one: HeldPod) -> Pod:
    made = pod(one.name, one.pod_request.mem, node=one.node, phase="Running")
    index = GpuIndex(one.gpu)
    place = Placement(one.node, mem={index: one.pod_request.mem})
    texts = annotations_of(
        place, one.pod_request, DEFAULT_NAMES, inventory=GPUS, assume_time=1, assigned=True
    )
    return msgspec.structs.replace(made, uid=one.uid, annotations=texts, namespace=one.namespace)
