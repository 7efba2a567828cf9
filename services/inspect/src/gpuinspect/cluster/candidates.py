"""The nodes of a snapshot as kube-scheduler sees them, and what its pods require of them."""

import msgspec

from gpucore.accounting.ledger import Ledger
from gpucore.kubescheduler.candidate_nodes import CandidateNodes
from gpucore.kubescheduler.candidates import Candidates, candidates_of
from gpucore.steps import complete
from gpucore.wire.pod.spec import Pod
from gpuinspect.cluster.snapshots import Snapshot
from gpuinspect.cluster.without_gc import uncollected


def candidates(snapshot: Snapshot, ledger: Ledger) -> Candidates:
    """Every node with the requests of the pods that are bound to it.

    Raises:
        WireError: an object is none of the Kubernetes API.
    """
    with uncollected():
        nodes = ledger.node_objects().values()
        known = CandidateNodes(ledger.names, nodes, snapshot.pods)
        return complete(candidates_of(ledger, known, copies=False))


def raw_pod(snapshot: Snapshot, pod: Pod) -> msgspec.Raw:
    """The object of a pod of the snapshot."""
    place = next(i for i, each in enumerate(snapshot.pods) if each.uid == pod.uid)
    return snapshot.all("Pod")[place]
