"""The mix of pods that usually come, by which the policy `fragmentation` places pods."""

from collections.abc import Mapping
from typing import Final

from gpucore.scheduling.candidates import Candidates
from gpucore.scheduling.host_rooms import allowed_models, usual_unit
from gpucore.steps import complete
from gpucore.units import PodUid
from gpucore.wire.names import Names
from gpucore.workload.arrivals import Arrival
from gpucore.workload.history import LearnedMix
from gpucore.workload.pod_mix import PodMix
from gpuinspect.cluster.arrivals import cluster_arrivals
from gpuinspect.cluster.saved_mix import SavedMix
from gpuinspect.cluster.snapshots import Snapshot

UNPUBLISHED: Final = (
    "the mix of pods that the extender uses could not be read; it was learned from the pods that"
    " exist, so the extender may choose other GPUs by the policy fragmentation"
)


def mix_in_use(
    snapshot: Snapshot, nodes: Candidates, saved: SavedMix, names: Names
) -> PodMix | None:
    """The mix that the extender published, else the one that an extender would learn now.

    ``None`` for the fixed guess.

    Args:
        nodes: of the same snapshot.
        saved: what the extender keeps.

    Raises:
        WireError: an amount is no Kubernetes quantity (no API server accepts such an object).
    """
    if saved.published is not None:
        return saved.published.mix()
    return learned_mix(cluster_arrivals(snapshot, names), nodes, saved).mix


def learned_mix(
    arrivals: Mapping[PodUid, Arrival], nodes: Candidates, saved: SavedMix
) -> LearnedMix:
    """What an extender that starts now would learn.

    Args:
        arrivals: the pods with GPUs, by UID.
        nodes: of the same snapshot, by whose labels the GPU models follow that a pod may use.
        saved: what the extender keeps; without a history pods that were deleted do not count.
    """
    found = LearnedMix()
    if saved.history is not None:
        found.history.restore(saved.history)
    for uid, arrival in arrivals.items():
        found.history.note(uid, arrival)
    pairs = ((nodes.node_infos[name], node) for name, node in nodes.nodes.items())
    models = complete(allowed_models(found.history.selectors(), pairs))
    complete(found.learn(models, complete(usual_unit(nodes.node_infos.values()))))
    return found
