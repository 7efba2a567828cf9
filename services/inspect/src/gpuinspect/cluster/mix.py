"""The mix of pods that usually come, learned from the pods of a snapshot as an extender does."""

import msgspec

from gpucore.accounting.ledger import Ledger
from gpucore.claims.arrivals import ClaimArrivals, ClaimSources
from gpucore.scheduling.candidates import Candidates
from gpucore.scheduling.host_rooms import allowed_models, arrival_of, usual_unit
from gpucore.steps import complete
from gpucore.wire.claim.claim_specs import decode_claim_template, decode_device_class
from gpucore.wire.claim.resource_claims import decode_claim
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
    with_claims = ClaimArrivals(found.history, _claim_sources(snapshot), ledger.names)
    for pod, raw in zip(snapshot.pods, snapshot.all("Pod"), strict=True):
        request = pod_request_of(pod, ledger.names)
        if request is not None and not request.fault:
            arrival = arrival_of(pod.namespace, request, all_constraints(raw), created(pod))
            found.history.note(pod.uid, arrival)
        elif pod.claims or pod.claim_templates:
            constrained = msgspec.structs.replace(pod, constraints=all_constraints(raw))
            with_claims.pod_changed(constrained)
    complete(with_claims.count())
    pairs = ((nodes.node_infos[name], node) for name, node in nodes.nodes.items())
    models = complete(allowed_models(found.history.selectors(), pairs))
    complete(found.learn(models, complete(usual_unit(nodes.node_infos.values()))))
    return found


def _claim_sources(snapshot: Snapshot) -> ClaimSources:
    claims = map(decode_claim, snapshot.all("ResourceClaim"))
    templates = map(decode_claim_template, snapshot.all("ResourceClaimTemplate"))
    classes = map(decode_device_class, snapshot.all("DeviceClass"))
    return ClaimSources(
        {(each.namespace, each.name): each for each in claims},
        {(each.namespace, each.name): each for each in templates},
        {each.name: each for each in classes} if snapshot.was_read("DeviceClass") else None,
    )
