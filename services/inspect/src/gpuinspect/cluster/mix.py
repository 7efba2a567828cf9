"""The mix of pods that usually come, learned from the pods of a snapshot as an extender does."""

from gpucore.accounting.ledger import Ledger
from gpucore.scheduling.candidates import Candidates
from gpucore.scheduling.host_rooms import allowed_models, arrival_of
from gpucore.steps import complete
from gpucore.wire.constraints import all_constraints
from gpucore.wire.pods import created, pod_request_of
from gpucore.workload.history import LearnedMix
from gpuinspect.cluster.snapshots import Snapshot


def learned_mix(snapshot: Snapshot, ledger: Ledger, nodes: Candidates) -> LearnedMix:
    """What an extender that starts now would learn.

    Args:
        nodes: of the same snapshot, by whose labels the GPU models follow that a pod may use.

    Raises:
        WireError: an amount is no Kubernetes quantity (no API server accepts such an object).
    """
    found = LearnedMix()
    for pod, raw in zip(snapshot.pods, snapshot.all("Pod"), strict=True):
        request = pod_request_of(pod, ledger.names)
        if request is not None and not request.fault:
            arrival = arrival_of(pod.namespace, request, all_constraints(raw), created(pod))
            found.history.note(pod.uid, arrival)
    pairs = ((nodes.node_infos[name], node) for name, node in nodes.nodes.items())
    models = complete(allowed_models(found.history.selectors(), pairs))
    complete(found.learn(models))
    return found
