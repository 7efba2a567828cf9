"""The pods with GPUs of a snapshot, with what each requests, by resources or by claims."""

from collections.abc import Iterator, Mapping

import msgspec

from gpucore.claims.arrivals import ClaimArrivals, ClaimSources
from gpucore.model.constraints import PodConstraints
from gpucore.scheduling.host_rooms import arrival_of
from gpucore.steps import complete
from gpucore.units import PodUid
from gpucore.wire.claim.claim_specs import decode_claim_template, decode_device_class
from gpucore.wire.claim.resource_claims import decode_claim
from gpucore.wire.constraints import all_constraints
from gpucore.wire.names import Names
from gpucore.wire.pod.spec import Pod
from gpucore.wire.pods import created, pod_request_of
from gpucore.workload.arrivals import Arrival
from gpuinspect.cluster.snapshots import Snapshot


class _ByUid(dict[PodUid, Arrival]):
    """Pods that are counted, in the order in which they came."""

    def note(self, uid: PodUid, arrival: Arrival) -> None:
        """Count a pod."""
        self.setdefault(uid, arrival)


def cluster_arrivals(snapshot: Snapshot, names: Names) -> Mapping[PodUid, Arrival]:
    """The pods with GPUs by UID: first those that request resources, then those with claims.

    A pod with claims is left out where an object that these need is not in the snapshot.

    Raises:
        WireError: an amount is no Kubernetes quantity (no API server accepts such an object).
    """
    found = _ByUid()
    with_claims = ClaimArrivals(found, _claim_sources(snapshot), names, limit=len(snapshot.pods))
    for pod, constraints in _constrained(snapshot):
        request = pod_request_of(pod, names)
        if request is not None and not request.fault:
            arrival = arrival_of(pod.namespace, request, constraints, created(pod))
            found.note(pod.uid, arrival)
        elif pod.claims or pod.claim_templates:
            with_claims.pod_changed(msgspec.structs.replace(pod, constraints=constraints))
    complete(with_claims.count())
    return found


def _constrained(snapshot: Snapshot) -> Iterator[tuple[Pod, PodConstraints]]:
    for pod, raw in zip(snapshot.pods, snapshot.all("Pod"), strict=True):
        yield pod, all_constraints(raw)


def _claim_sources(snapshot: Snapshot) -> ClaimSources:
    claims = map(decode_claim, snapshot.all("ResourceClaim"))
    templates = map(decode_claim_template, snapshot.all("ResourceClaimTemplate"))
    classes = map(decode_device_class, snapshot.all("DeviceClass"))
    return ClaimSources(
        {(each.namespace, each.name): each for each in claims},
        {(each.namespace, each.name): each for each in templates},
        {each.name: each for each in classes} if snapshot.was_read("DeviceClass") else None,
    )
