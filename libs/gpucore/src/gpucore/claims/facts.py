"""What the claims of a pod are, from the objects of a cluster: input of their explanation."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from gpucore.accounting.claim_offers import ClaimOffers, ClaimSpecs, Key
from gpucore.claims.node_fit import ClaimRules
from gpucore.claims.objects import CLAIM, CLASS, TEMPLATE, MissingObject, may_be_ours
from gpucore.model import Allocation, PodRequest
from gpucore.model.constraints import PodConstraints
from gpucore.units import NodeName, PodUid
from gpucore.wire.claim.claim_specs import ClaimSpec, DeviceClass
from gpucore.wire.claim.pod_claims import PodClaim
from gpucore.wire.pod.scheduler_events import SchedulerRecord
from gpucore.wire.pod.spec import Pod


class ClaimFacts(msgspec.Struct, frozen=True):
    """What is known of a pod with claims.

    Attributes:
        rules: of the claims that are not allocated yet.
        specs: what all claims request.
        allocated: claims that are allocated for other pods, and their nodes: the pod shares them.
        missing: claims, templates and classes that do not exist, on which they depend.
    """

    pod: Pod
    rules: ClaimRules
    specs: tuple[ClaimSpec, ...]
    allocated: tuple[tuple[str, NodeName], ...] = ()
    held: tuple[Allocation, ...] = ()
    missing: tuple[MissingObject, ...] = ()
    constraints: PodConstraints = PodConstraints()
    scheduler_record: SchedulerRecord = SchedulerRecord()


def facts_of_extended(
    pod: Pod,
    pod_request: PodRequest,
    classes: Mapping[str, DeviceClass],
    *,
    device_class: str,
    constraints: PodConstraints,
    scheduler_record: SchedulerRecord,
) -> ClaimFacts:
    """What is known of a pod for whose exclusive GPUs its scheduler has yet to make a claim.

    Args:
        device_class: name of the class that serves them.
    """
    spec = ClaimOffers(extended_class=device_class).exclusive(pod_request.gpus)
    rules = ClaimRules((spec,), classes)
    return ClaimFacts(
        pod, rules, rules.specs, constraints=constraints, scheduler_record=scheduler_record
    )


def awaits_claim(pod: Pod, pod_request: PodRequest) -> bool:
    """The pod has no node, and requests exclusive GPUs and no shares."""
    return not (pod.node or pod_request.fault) and pod_request.gpus > 0


class ClaimObjects(msgspec.Struct, frozen=True):
    """The objects that claims of pods refer to.

    Attributes:
        used_by: what the claims of a pod hold, by UID of the pod.
        allocated: what claims hold, by namespace and name of the claim.
        listed: kinds of which all objects are known.
    """

    classes: Mapping[str, DeviceClass] = {}
    specs: ClaimSpecs = ClaimSpecs()
    used_by: Mapping[PodUid, tuple[Allocation, ...]] = {}
    allocated: Mapping[Key, Allocation] = {}
    listed: frozenset[str] = frozenset()

    def facts(
        self,
        pod: Pod,
        claims: Sequence[PodClaim],
        constraints: PodConstraints,
        scheduler_record: SchedulerRecord,
    ) -> ClaimFacts | None:
        """What is known of a pod with claims; ``None`` where it uses no claim for GPUs of ours."""
        found = [(each, spec) for each in claims if (spec := self._spec_of(pod.namespace, each))]
        specs = tuple(spec for _, spec in found)
        elsewhere = {each.claim: self.allocated.get((pod.namespace, each.claim)) for each in claims}
        held = self._held_by(pod, claims)
        if not held and not any(map(self._is_ours, specs)) and not self._unknown(pod, claims):
            return None
        return ClaimFacts(
            pod=pod,
            rules=ClaimRules(
                tuple(spec for each, spec in found if not elsewhere[each.claim]), self.classes
            ),
            specs=specs,
            allocated=tuple((name, it.placement.node) for name, it in elsewhere.items() if it),
            held=held,
            missing=tuple(self._missing(pod.namespace, claims, specs)),
            constraints=constraints,
            scheduler_record=scheduler_record,
        )

    def _held_by(self, pod: Pod, claims: Sequence[PodClaim]) -> tuple[Allocation, ...]:
        """What its claims hold: those it names, once it may use them."""
        used = self.used_by.get(pod.uid, ())
        named = {each.claim for each in claims}
        return tuple(each for each in used if each.name in named or not claims)

    def _spec_of(self, namespace: str, claim: PodClaim) -> ClaimSpec | None:
        made = self.specs.claims.get((namespace, claim.claim)) if claim.claim else None
        return made or self.specs.templates.get((namespace, claim.template))

    def _is_ours(self, spec: ClaimSpec) -> bool:
        choices = (choice for request in spec.requests for choice in request.choices)
        return any(may_be_ours(each, self.classes.get(each.device_class)) for each in choices)

    def _unknown(self, pod: Pod, claims: Sequence[PodClaim]) -> bool:
        """A claim or a template is missing whose name is of ours."""
        names = (each.template for each in claims if not self._spec_of(pod.namespace, each))
        return any(name.startswith("gpushare-") for name in names)

    def _missing(
        self, namespace: str, claims: Sequence[PodClaim], specs: Sequence[ClaimSpec]
    ) -> Iterator[MissingObject]:
        for each in claims:
            if self._spec_of(namespace, each) is None:
                yield from self._missing_object(namespace, each)
        if CLASS not in self.listed:
            return
        wanted = (c.device_class for s in specs for request in s.requests for c in request.choices)
        for name in sorted(set(wanted) - self.classes.keys()):
            yield MissingObject(CLASS, name)

    def _missing_object(self, namespace: str, claim: PodClaim) -> Iterator[MissingObject]:
        if claim.template and TEMPLATE in self.listed:
            yield MissingObject(TEMPLATE, claim.template, namespace)
        elif claim.claim and CLAIM in self.listed:
            yield MissingObject(CLAIM, claim.claim, namespace)


def allocated_by_name(held: Iterable[Allocation]) -> Mapping[Key, Allocation]:
    """What claims hold, by namespace and name of the claim."""
    return {(each.namespace, each.name): each for each in held}


def used_by(held: Iterable[Allocation]) -> Mapping[PodUid, tuple[Allocation, ...]]:
    """What the claims of each pod hold, by UID of the pod."""
    found: dict[PodUid, tuple[Allocation, ...]] = {}
    for each in held:
        for uid, _ in each.users or ():
            found[uid] = (*found.get(uid, ()), each)
    return found
