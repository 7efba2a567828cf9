"""The mix of pods that usually come: as the extender saved it, or learned as an extender does.

The mix in the extender's ConfigMap is that of a process that runs while it was published after the
start of one of the extender's containers. A process that has just started publishes at once; until
then, and beside an extender that publishes nothing, the mix follows from the history in the
ConfigMap and the pods that exist.
"""

from collections.abc import Iterator, Mapping
from typing import Final

import msgspec

from gpucore.claims.arrivals import ClaimArrivals, ClaimSources
from gpucore.model.constraints import PodConstraints
from gpucore.scheduling.candidates import Candidates
from gpucore.scheduling.host_rooms import allowed_models, arrival_of, usual_unit
from gpucore.steps import complete
from gpucore.units import PodUid
from gpucore.wire.claim.claim_specs import decode_claim_template
from gpucore.wire.claim.resource_claims import decode_claim
from gpucore.wire.constraints import all_constraints
from gpucore.wire.errors import WireError
from gpucore.wire.names import Names
from gpucore.wire.pod.spec import Pod, created
from gpucore.wire.whole_requests import pod_request_of
from gpucore.workload import mix_in_use
from gpucore.workload.arrivals import HISTORY_KEY, Arrival, SavedHistory, decode_history
from gpucore.workload.history import LearnedMix
from gpucore.workload.mix_in_use import MixInUse, decode_mix
from gpuinspect.cluster.claims import device_classes
from gpuinspect.cluster.extenders import EXTENDER, config_map, extenders, flags_of
from gpuinspect.cluster.rawpods import status_of
from gpuinspect.cluster.snapshots import Snapshot

_FLAG: Final = "mix-history"
UNPUBLISHED: Final = (
    "the mix of pods that the extender uses could not be read; it was learned from the pods that"
    " exist, so the extender may choose other GPUs by the policy fragmentation"
)


class SavedMix(msgspec.Struct, frozen=True):
    """What could be read.

    Attributes:
        history: the pods; some of them are deleted. ``None`` where it keeps none.
        published: the mix in use; ``None`` where a running extender has not published it.
        extender: the cluster has an extender.
    """

    history: SavedHistory | None = None
    published: MixInUse | None = None
    extender: bool = False

    @property
    def unpublished(self) -> bool:
        """The extender uses a mix that could not be read."""
        return self.extender and self.published is None


def saved_mix(snapshot: Snapshot, now: float) -> SavedMix:
    """What the extender keeps.

    Args:
        snapshot: the cluster.
        now: Unix seconds.
    """
    flagged = [(pod, raw, flags_of(raw).get(_FLAG)) for pod, raw in extenders(snapshot)]
    wanted = flagged[0][2] if flagged else None
    if not wanted:
        return SavedMix(extender=bool(flagged))
    namespace, _, name = wanted.partition("/")
    data = config_map(snapshot, namespace, name)
    starts = (
        _started(pod, raw)
        for pod, raw, where in flagged
        if where == wanted and pod.namespace == namespace
    )
    return SavedMix(
        _history(data.get(HISTORY_KEY), now),
        _published(data.get(mix_in_use.KEY), min(starts, default=float("inf"))),
        extender=True,
    )


def _history(text: str | None, now: float) -> SavedHistory | None:
    try:
        return decode_history(text, now) if text else None
    except WireError:
        return None


def _published(text: str | None, started: float) -> MixInUse | None:
    try:
        found = decode_mix(text) if text else None
    except WireError:
        return None
    return found if found is not None and found.time >= started else None


def _started(pod: Pod, raw: msgspec.Raw) -> float:
    """When its extender's container started, else when it was created, in Unix seconds."""
    for box in status_of(raw).container_statuses or ():
        running = box.state.running if box.name == EXTENDER and box.state else None
        if running is not None and running.started_at is not None:
            return running.started_at.timestamp()
    return created(pod)


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
    for pod, raw in snapshot.raw_pods():
        yield pod, all_constraints(raw)


def _claim_sources(snapshot: Snapshot) -> ClaimSources:
    claims = snapshot.readable("ResourceClaim", decode_claim)
    templates = snapshot.readable("ResourceClaimTemplate", decode_claim_template)
    return ClaimSources(
        {(each.namespace, each.name): each for each in claims},
        {(each.namespace, each.name): each for each in templates},
        device_classes(snapshot) if snapshot.was_read("DeviceClass") else None,
    )


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
    models = complete(allowed_models(complete(found.history.selectors()), pairs))
    complete(found.learn(models, complete(usual_unit(nodes.node_infos.values()))))
    return found
