"""The mix of pods that usually come, learned from the pods of a snapshot as an extender does."""

from collections.abc import Mapping

from gpucore.scheduling.candidates import Candidates
from gpucore.scheduling.host_rooms import allowed_models, usual_unit
from gpucore.steps import complete
from gpucore.units import PodUid
from gpucore.workload.arrivals import Arrival
from gpucore.workload.history import LearnedMix
from gpucore.workload.saved_history import SavedHistory


def learned_mix(
    arrivals: Mapping[PodUid, Arrival], nodes: Candidates, saved: SavedHistory | None = None
) -> LearnedMix:
    """What an extender that starts now would learn.

    Args:
        arrivals: the pods with GPUs, by UID.
        nodes: of the same snapshot, by whose labels the GPU models follow that a pod may use.
        saved: what the extender keeps, where it is known; without it pods that were deleted do not
            count.
    """
    found = LearnedMix()
    if saved is not None:
        found.history.restore(saved)
    for uid, arrival in arrivals.items():
        found.history.note(uid, arrival)
    pairs = ((nodes.node_infos[name], node) for name, node in nodes.nodes.items())
    models = complete(allowed_models(found.history.selectors(), pairs))
    complete(found.learn(models, complete(usual_unit(nodes.node_infos.values()))))
    return found
