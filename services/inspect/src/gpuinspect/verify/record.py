"""Records results where monitoring finds them: on the plugin's pod of the node, and as events.

The device plugin publishes its annotation as metrics, and the dashboard shows it.
"""

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from gpucore.wire.errors import WireError
from gpucore.wire.json_patches import ANNOTATIONS, set_entries
from gpucore.wire.names import VERIFIED, Names
from gpucore.wire.node.inventories import inventory_of
from gpucore.wire.node.spec import Node
from gpucore.wire.pod.spec import Pod, decode_pod
from gpucore.wire.verified import VerifiedNode, decode_verified, encode_verified
from gpuinspect.cluster.snapshots import Snapshot
from gpuinspect.eviction.requests import record as post_event
from gpuinspect.verify.image import plugin_pods
from gpuinspect.verify.rows import RowOutcome
from gpukube.errors import KubeError
from gpukube.events import EventSource, ObjectReference
from gpuprobe.checks.verdicts import ProofVerdict

if TYPE_CHECKING:  # the import takes a while
    from gpukube.blocking import BlockingClient

VERIFY_FAILED: Final = "GpuVerifyFailed"
_UNRECORDED: Final = "the results of node {} are not recorded"
SOURCE: Final = EventSource("gpushare-verify", "gpushare-verify", may_patch=False)


def record(
    kube: "BlockingClient", snapshot: Snapshot, names: Names, outcomes: Sequence[RowOutcome]
) -> list[str]:
    """Write annotations and events; a sentence for each node that could not be recorded."""
    pods = plugin_pods(snapshot)
    nodes: dict[str, Node] = {node.name: node for node in snapshot.nodes}
    errors = []
    for node, verified in results(outcomes, int(time.time())).items():
        if (pod := pods.get(node)) is None:
            errors.append(f"{_UNRECORDED.format(node)}: no device plugin of gpushare runs there")
            continue
        try:
            found = inventory_of(nodes[node], names)
            uuids = {str(gpu.index): gpu.uuid for gpu in found.gpus} if found else {}
            _annotate(kube, pod, verified, uuids)
        except (KubeError, WireError) as error:
            errors.append(f"{_UNRECORDED.format(node)}: {error}")
    for each in outcomes:
        if each.proof.verdict is ProofVerdict.FAIL:
            node_object = nodes.get(each.target.node)
            uid = node_object.uid if node_object else ""
            about = ObjectReference("Node", each.target.node, "", uid)
            post_event(kube, about, VERIFY_FAILED, message(each), source=SOURCE, type_="Warning")
    return errors


def results(outcomes: Iterable[RowOutcome], at: int) -> dict[str, VerifiedNode]:
    """The results of each node."""
    found: dict[str, dict[str, dict[str, str]]] = {}
    for each in outcomes:
        rows = found.setdefault(each.target.node, {}).setdefault(each.target.uuid, {})
        rows[each.proof.row] = each.proof.verdict.value
    return {node: VerifiedNode(at, gpus) for node, gpus in found.items()}


def joined(
    before: VerifiedNode | None, now: VerifiedNode, uuids: Mapping[str, str]
) -> VerifiedNode:
    """The results of a run, and earlier ones of rows that it did not run or skipped.

    Else a fault would seem to be gone once its GPU is full, or another GPU is the emptiest.

    Args:
        uuids: of the GPUs that the node has, by index; results of others are left out.
    """
    found: dict[str, dict[str, str]] = {}
    for gpu, rows in before.gpus.items() if before else ():
        if (uuid := uuids.get(gpu, gpu)) in uuids.values():
            found[uuid] = {**rows, **found.get(uuid, {})}
    for gpu, rows in now.gpus.items():
        known = found.setdefault(gpu, {})
        for row, verdict in rows.items():
            if verdict != ProofVerdict.SKIP.value or row not in known:
                known[row] = verdict
    return VerifiedNode(now.at, found)


def message(outcome: RowOutcome) -> str:
    """What an event states."""
    target, proof = outcome.target, outcome.proof
    where = f"GPU {target.index} ({target.uuid})"
    return f"{where}: {proof.row}: expected {proof.expected}; seen {proof.seen}"


def _annotate(
    kube: "BlockingClient", pod: Pod, verified: VerifiedNode, uuids: Mapping[str, str]
) -> None:
    """Join the results with those that the pod has now: others may have written during the run."""
    path = f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}"
    present = decode_pod(kube.get(path)).annotations
    before = decode_verified(present.get(VERIFIED, ""))
    texts = {VERIFIED: encode_verified(joined(before, verified, uuids))}
    same = {"op": "test", "path": "/metadata/uid", "value": pod.uid}
    kube.json_patch(path, [same, *set_entries(ANNOTATIONS, present, texts)])
