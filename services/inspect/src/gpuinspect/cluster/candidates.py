"""The nodes of a snapshot as kube-scheduler sees them, and what its pods require of them."""

import time

import msgspec

from gpucore.accounting.claim_offers import offers_of
from gpucore.accounting.ledger import Ledger
from gpucore.kubescheduler.candidate_nodes import CandidateNodes
from gpucore.scheduling.candidates import Candidates, candidates_of
from gpucore.scheduling.host_rooms import use_mix
from gpucore.steps import complete
from gpucore.wire.claim.resource_slices import decode_slice
from gpucore.wire.names import Names
from gpucore.workload.pod_mix import PodMix
from gpuinspect.cluster.claims import device_classes
from gpuinspect.cluster.mix import cluster_arrivals, learned_mix, saved_mix
from gpuinspect.cluster.snapshots import Snapshot, uncollected


def candidates(snapshot: Snapshot, ledger: Ledger) -> Candidates:
    """Every node with the requests of the pods that are bound to it.

    Raises:
        WireError: an object is none of the Kubernetes API.
    """
    with uncollected():
        nodes = ledger.node_objects().values()
        known = CandidateNodes(ledger.names, nodes, snapshot.pods)
        found = complete(candidates_of(ledger, known, copies=False))
        offers = offers_of(
            map(decode_slice, snapshot.all("ResourceSlice")),
            device_classes(snapshot),
            ledger.names.gpu,
        )
        use_mix(found.node_infos, found.nodes, _mix(snapshot, found, ledger.names))
    return msgspec.structs.replace(found, offers=offers)


def _mix(snapshot: Snapshot, nodes: Candidates, names: Names) -> PodMix | None:
    """The mix that the extender published, else the one that an extender would learn now."""
    saved = saved_mix(snapshot, time.time())
    if saved.published is not None:
        return saved.published.mix()
    return learned_mix(cluster_arrivals(snapshot, names), nodes, saved.history).mix
