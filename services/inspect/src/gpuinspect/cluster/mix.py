"""The mix of pods that usually come, learned from the pods of a snapshot as an extender does."""

from gpucore.accounting.ledger import Ledger
from gpucore.scheduling.candidates import Candidates
from gpucore.scheduling.host_rooms import allowed_models, usual_unit
from gpucore.steps import complete
from gpucore.workload.history import LearnedMix
from gpuinspect.cluster.arrivals import cluster_arrivals
from gpuinspect.cluster.snapshots import Snapshot


def learned_mix(snapshot: Snapshot, ledger: Ledger, nodes: Candidates) -> LearnedMix:
    """What an extender that starts now would learn.

    Args:
        nodes: of the same snapshot, by whose labels the GPU models follow that a pod may use.

    Raises:
        WireError: an amount is no Kubernetes quantity (no API server accepts such an object).
    """
    found = LearnedMix()
    for uid, arrival in cluster_arrivals(snapshot, ledger.names).items():
        found.history.note(uid, arrival)
    pairs = ((nodes.node_infos[name], node) for name, node in nodes.nodes.items())
    models = complete(allowed_models(found.history.selectors(), pairs))
    complete(found.learn(models, complete(usual_unit(nodes.node_infos.values()))))
    return found
