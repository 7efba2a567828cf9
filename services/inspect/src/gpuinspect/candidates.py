"""The nodes of a snapshot as kube-scheduler sees them, and what its pods require of them."""

import msgspec

from gpucore.ledger import Ledger
from gpucore.scheduling.candidates import Candidates
from gpucore.scheduling.constraints import PodConstraints, Resources
from gpucore.units import NodeName, PodUid
from gpucore.wire.constraints import candidate_node, pod_constraints
from gpucore.wire.names import Names
from gpucore.wire.podspec import Pod
from gpuinspect.snapshots import Snapshot
from gpuinspect.uncollected import uncollected


def candidates(snapshot: Snapshot, ledger: Ledger) -> Candidates:
    """Every node with the requests of the pods that are bound to it.

    Raises:
        WireError: an object is none of the Kubernetes API.
    """
    bound: dict[NodeName, list[Resources]] = {node.name: [] for node in snapshot.nodes}
    requests: dict[PodUid, Resources] = {}
    with uncollected():
        for pod, raw in zip(snapshot.pods, snapshot.all("Pod"), strict=True):
            if pod.node in bound and not pod.finished:
                asked = pod_constraints(raw, ledger.names).requests
                requests[pod.uid] = asked
                bound[pod.node].append(asked)
    accounts = ledger.nodes()
    return Candidates(
        accounts={node.name: accounts[node.name] for node in snapshot.nodes},
        nodes={node.name: candidate_node(node, bound[node.name]) for node in snapshot.nodes},
        requests=requests,
    )


def constraints_of(snapshot: Snapshot, pod: Pod, names: Names) -> PodConstraints:
    """What a pod of the snapshot requires of its node besides GPUs."""
    return pod_constraints(_raw(snapshot, pod), names)


def _raw(snapshot: Snapshot, pod: Pod) -> msgspec.Raw:
    place = next(i for i, each in enumerate(snapshot.pods) if each.uid == pod.uid)
    return snapshot.all("Pod")[place]
