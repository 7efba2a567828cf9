"""The claims of a pod, for a service that watches slices, templates and classes.

The claims of the pod are given as objects: what an allocated claim requested is not kept.
"""

from collections.abc import Iterable, Mapping, Sequence

from gpucore.accounting.claim_offers import (
    ClaimOffers,
    ClaimSpecs,
    DeviceMap,
    Key,
    by_index,
    exclusive_class,
    serving_class,
)
from gpucore.accounting.claims import ClaimAccounts
from gpucore.accounting.ledger import Ledger
from gpucore.claims.facts import (
    ClaimFacts,
    ClaimObjects,
    allocated_by_name,
    awaits_claim,
    facts_of_extended,
    used_by,
)
from gpucore.claims.node_fit import ClaimNode
from gpucore.claims.objects import CLAIM, CLASS, TEMPLATE
from gpucore.model import PodRequest
from gpucore.model.constraints import PodConstraints
from gpucore.scheduling.candidates import Candidates
from gpucore.steps import Steps
from gpucore.units import NodeName
from gpucore.wire.claim.claim_specs import (
    ClaimSpec,
    ClaimTemplate,
    DeviceClass,
)
from gpucore.wire.claim.devices import SliceDevice
from gpucore.wire.claim.pod_claims import claims_of_pod
from gpucore.wire.claim.resource_claims import ResourceClaim, decode_claim
from gpucore.wire.lists import page_of
from gpucore.wire.pod.scheduler_events import scheduler_record
from gpucore.wire.pod.spec import Pod


class FollowedClaims:
    """The claims of pods.

    Args:
        accounts: slices by node.
        templates, classes: all there are; ``None`` where they are not followed.
    """

    def __init__(
        self,
        ledger: Ledger,
        accounts: ClaimAccounts,
        templates: Mapping[Key, ClaimTemplate] | None = None,
        classes: Mapping[str, DeviceClass] | None = None,
    ) -> None:
        self._ledger, self._accounts = ledger, accounts
        self._templates, self._classes = templates, classes

    def facts(
        self, pod: Pod, raw: bytes, constraints: PodConstraints, lists: Sequence[bytes]
    ) -> ClaimFacts | None:
        """What is known of a pod with claims; ``None`` where it uses no claim for GPUs of ours.

        Args:
            lists: lists with the claims that it names, those that exist.

        Raises:
            WireError: a list is none of ResourceClaims.
        """
        claims = claims_of_pod(raw)
        claimed = _claims(lists)
        templates = ((pod.namespace, each.template) for each in claims if each.template)
        known = (self._ledger.allocation(each.uid) for each in claimed)
        held = [each for each in known if each is not None]
        followed = ((TEMPLATE, self._templates), (CLASS, self._classes))
        listed = {CLAIM, *(kind for kind, objects in followed if objects is not None)}
        objects = ClaimObjects(
            dict(self._classes or {}),
            ClaimSpecs(_specs(claimed), self._known_templates(templates)),
            used_by(held),
            allocated_by_name(held),
            frozenset(listed),
        )
        return objects.facts(pod, claims, constraints, scheduler_record(raw))

    def facts_of_extended(
        self, pod: Pod, pod_request: PodRequest, raw: bytes, constraints: PodConstraints
    ) -> ClaimFacts | None:
        """As the function of this name; ``None`` where the pod waits for no such claim."""
        classes, ledger = dict(self._classes or {}), self._ledger
        name = exclusive_class(ledger.nodes().values(), classes, ledger.names.gpu)
        if not name or not awaits_claim(pod, pod_request):
            return None
        return facts_of_extended(
            pod,
            pod_request,
            classes,
            device_class=name,
            constraints=constraints,
            scheduler_record=scheduler_record(raw),
        )

    def nodes(self, candidates: Candidates) -> Steps[Mapping[NodeName, ClaimNode]]:
        """Every node with the devices of its slices."""
        found: dict[NodeName, ClaimNode] = {}
        for name, info in candidates.node_infos.items():
            found[name] = ClaimNode(info, by_index(self._devices(name)))
            yield
        return found

    @property
    def reads_classes(self) -> bool:
        """Whether templates and DeviceClasses are followed."""
        return self._templates is not None and self._classes is not None

    def specs(self, templates: Iterable[Key], lists: Iterable[bytes]) -> ClaimSpecs:
        """What these templates and the claims of these lists request, those that exist.

        Raises:
            WireError: a list is none of ResourceClaims.
        """
        return ClaimSpecs(_specs(_claims(lists)), self._known_templates(templates))

    def offers(self, names: Iterable[NodeName], resource: str) -> Steps[ClaimOffers]:
        """What nodes offer to claims.

        Args:
            resource: name of the extended resource for exclusive GPUs.
        """
        devices: dict[NodeName, DeviceMap] = {}
        for name in names:
            if found := by_index(self._devices(name)):
                devices[name] = found
            yield
        classes = dict(self._classes or {})
        return ClaimOffers(devices, classes, serving_class(classes, resource))

    def _devices(self, name: NodeName) -> tuple[SliceDevice, ...]:
        return tuple(each for one in self._accounts.slices(name) for each in one.devices)

    def _known_templates(self, keys: Iterable[Key]) -> Mapping[Key, ClaimSpec]:
        known = self._templates or {}
        return {key: known[key].spec for key in keys if key in known}


def _claims(lists: Iterable[bytes]) -> list[ResourceClaim]:
    return [claim for body in lists for claim in page_of(body, decode_claim).items]


def _specs(claims: Iterable[ResourceClaim]) -> Mapping[Key, ClaimSpec]:
    return {(c.namespace, c.name): c.spec for c in claims if c.spec is not None}
