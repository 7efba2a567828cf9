"""What a snapshot tells about pods with ResourceClaims, and the core's explanation of them."""

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Final

import msgspec

from gpucore.accounting.ledger import Ledger
from gpucore.claims.explain import ClaimFacts, claims_sentence, explain_claims
from gpucore.claims.node_fit import ClaimNode, ClaimRules, claim_node
from gpucore.claims.selectors import excludes_driver
from gpucore.explain.pod_states import Explanation, PodState
from gpucore.kubescheduler.candidates import Candidates
from gpucore.model import Allocation, PodRequest
from gpucore.units import NodeName, PodUid
from gpucore.wire.claim.claim_specs import (
    ClaimSpec,
    DeviceChoice,
    DeviceClass,
    decode_claim_spec,
    decode_device_class,
    decode_template,
)
from gpucore.wire.claim.devices import SliceDevice
from gpucore.wire.claim.pod_claims import PodClaim, claims_of_pod
from gpucore.wire.claim.resource_slices import decode_slice
from gpucore.wire.constraints import pod_constraints
from gpucore.wire.names import CLAIM_DRIVER
from gpucore.wire.pod.scheduler_events import sightings
from gpucore.wire.pod.spec import Pod
from gpuinspect.cluster.collect import RESOURCE_API, ListRequest
from gpuinspect.cluster.snapshots import Snapshot

DEVICE_CLASSES: Final = ListRequest("DeviceClass", f"{RESOURCE_API}/deviceclasses", optional=True)
_KNOWN: Final = frozenset({"gpushare", "gpushare-exclusive"})
"""Classes of the chart; taken to be ours where DeviceClasses cannot be read."""


KINDS: Final = 64
"""Different claims of pending pods that are explained for one snapshot."""
NOTHING: Final = PodRequest(containers=())
"""The request of a pod whose GPUs are requested by claims."""


def claim_templates(namespace: str) -> ListRequest:
    """The templates of a namespace; empty for all."""
    inside = f"namespaces/{namespace}/" if namespace else ""
    path = f"{RESOURCE_API}/{inside}resourceclaimtemplates"
    return ListRequest("ResourceClaimTemplate", path, optional=True)


class PodClaims:
    """The claims of the pods of one snapshot.

    Args:
        snapshot: the objects.
        ledger: allocations of the same snapshot.
    """

    def __init__(self, snapshot: Snapshot, ledger: Ledger) -> None:
        self._snapshot, self._ledger = snapshot, ledger
        self._alike: dict[object, Explanation] = {}

    @cached_property
    def classes(self) -> Mapping[str, DeviceClass]:
        """The DeviceClasses by name."""
        found = map(decode_device_class, self._snapshot.all("DeviceClass"))
        return {each.name: each for each in found}

    @cached_property
    def nodes(self) -> Mapping[NodeName, ClaimNode]:
        """Every node, with the devices of its slices."""
        devices: dict[str, tuple[SliceDevice, ...]] = {}
        for found in map(decode_slice, self._snapshot.all("ResourceSlice")):
            if found.driver == CLAIM_DRIVER and found.pool == found.node:
                devices[found.node] = (*devices.get(found.node, ()), *found.devices)
        infos = self._ledger.nodes()
        return {
            name: claim_node(infos[name], devices.get(name, ()))
            for name in self._ledger.node_objects()
            if name in infos
        }

    @cached_property
    def _specs(self) -> Mapping[tuple[str, str], ClaimSpec]:
        found = map(decode_claim_spec, self._snapshot.all("ResourceClaim"))
        return {(namespace, name): spec for namespace, name, spec in found}

    @cached_property
    def _templates(self) -> Mapping[tuple[str, str], ClaimSpec]:
        found = map(decode_template, self._snapshot.all("ResourceClaimTemplate"))
        return {(namespace, name): spec for namespace, name, spec in found}

    @cached_property
    def _held(self) -> Mapping[tuple[str, str], Allocation]:
        allocations = (self._ledger.allocation(uid) for uid in self._ledger.claims())
        return {(each.namespace, each.name): each for each in allocations if each is not None}

    @cached_property
    def used_by(self) -> Mapping[PodUid, tuple[Allocation, ...]]:
        """What the claims of each pod hold, by UID of the pod."""
        found: dict[PodUid, tuple[Allocation, ...]] = {}
        for held in self._held.values():
            for uid, _ in held.users or ():
                found[uid] = (*found.get(uid, ()), held)
        return found

    def explain(self, facts: ClaimFacts, candidates: Candidates) -> Explanation:
        """The core's explanation; once for all pods that request and require the same.

        Pods of more than :data:`KINDS` kinds have the words of their scheduler alone: their authors
        choose how long an explanation takes.
        """
        if facts.held or facts.pod.finished:
            return explain_claims(facts, self.nodes, candidates)
        kind = (facts.rules.specs, facts.missing, facts.constraints)
        if kind not in self._alike and len(self._alike) >= KINDS:
            asks = claims_sentence(facts.rules.specs)
            return Explanation(facts.pod, PodState.UNDECIDED, asks=asks, sightings=facts.sightings)
        if kind not in self._alike:
            self._alike[kind] = explain_claims(facts, self.nodes, candidates)
        found = self._alike[kind]
        return msgspec.structs.replace(found, pod=facts.pod, sightings=facts.sightings)

    def facts(self, pod: Pod, raw: msgspec.Raw) -> ClaimFacts | None:
        """What is known of a pod with claims; ``None`` where it uses no claim for GPUs of ours."""
        claims = claims_of_pod(raw)
        specs = [spec for each in claims if (spec := self._spec_of(pod.namespace, each))]
        held = self._held_by(pod, claims)
        if not held and not any(map(self._is_ours, specs)) and not self._unknown(pod, claims):
            return None
        known = self._snapshot.knows("Event")
        return ClaimFacts(
            pod=pod,
            rules=ClaimRules(tuple(specs), self.classes),
            held=held,
            missing=tuple(self._missing(pod.namespace, claims, specs)),
            constraints=pod_constraints(raw, self._ledger.names),
            sightings=sightings(raw, self._snapshot.all("Event"), complete=known),
        )

    def _held_by(self, pod: Pod, claims: Sequence[PodClaim]) -> tuple[Allocation, ...]:
        """What its claims hold: those it names, once it may use them."""
        used = self.used_by.get(pod.uid, ())
        named = {each.claim for each in claims}
        return tuple(each for each in used if each.name in named or not claims)

    def _spec_of(self, namespace: str, claim: PodClaim) -> ClaimSpec | None:
        made = self._specs.get((namespace, claim.claim)) if claim.claim else None
        return made or self._templates.get((namespace, claim.template))

    def _is_ours(self, spec: ClaimSpec) -> bool:
        return any(self._may_be_ours(choice) for each in spec.requests for choice in each.choices)

    def _may_be_ours(self, choice: DeviceChoice) -> bool:
        known = self.classes.get(choice.device_class)
        if known is None:
            return choice.device_class in _KNOWN
        mentions = any(CLAIM_DRIVER in each for each in (*known.selectors, *choice.selectors))
        return mentions and not excludes_driver(CLAIM_DRIVER, known.selectors)

    def _unknown(self, pod: Pod, claims: Sequence[PodClaim]) -> bool:
        """A claim or a template is missing whose name is of ours."""
        names = (each.template for each in claims if not self._spec_of(pod.namespace, each))
        return any(name.startswith("gpushare-") for name in names)

    def _missing(
        self, namespace: str, claims: Sequence[PodClaim], specs: Sequence[ClaimSpec]
    ) -> Iterator[str]:
        for each in claims:
            if self._spec_of(namespace, each) is None:
                yield from self._missing_object(namespace, each)
        if not self._snapshot.knows("DeviceClass"):
            return
        wanted = (c.device_class for s in specs for request in s.requests for c in request.choices)
        for name in sorted(set(wanted) - self.classes.keys()):
            yield f"DeviceClass {name} does not exist: the chart creates it (see 'gpushare doctor')"

    def _missing_object(self, namespace: str, claim: PodClaim) -> Iterator[str]:
        if claim.template and self._snapshot.knows("ResourceClaimTemplate"):
            yield f"create ResourceClaimTemplate {claim.template} in namespace {namespace}"
        elif claim.claim and self._snapshot.knows("ResourceClaim"):
            yield f"create ResourceClaim {claim.claim} in namespace {namespace}"
