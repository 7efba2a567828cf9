"""What pending pods with claims require, as far as templates, claims and classes are known."""

from collections.abc import Iterator, Mapping

from gpucore.accounting.claim_offers import Key
from gpucore.claims.nomination import (
    ClaimRequirements,
    may_be_nominated,
    rated_quickly,
    requests_only_our_devices,
)
from gpucore.units import PodUid
from gpucore.wire.claim.claim_specs import ClaimSpec, ClaimTemplate, DeviceClass
from gpucore.wire.claim.resource_claims import ResourceClaim
from gpucore.wire.pod.spec import Pod


class PendingClaimPods:
    """The pods that wait for a node and request GPUs by claims.

    Args:
        templates, claims, classes: all there are; the owner changes these mappings.
        schedulers: names of the schedulers whose pods count.
    """

    def __init__(
        self,
        templates: Mapping[Key, ClaimTemplate],
        claims: Mapping[Key, ResourceClaim],
        classes: Mapping[str, DeviceClass],
        *,
        schedulers: frozenset[str],
    ) -> None:
        self._templates, self._claims, self._classes = templates, claims, classes
        self._schedulers = schedulers
        self._pods: dict[PodUid, Pod] = {}
        self._kinds: dict[PodUid, ClaimRequirements] = {}
        self._users: dict[ClaimRequirements, set[PodUid]] = {}

    def __len__(self) -> int:
        """How many there are."""
        return len(self._pods)

    def get(self, uid: PodUid) -> Pod | None:
        """The pod as it is known now."""
        return self._pods.get(uid)

    def in_order(self) -> Iterator[Pod]:
        """Those of the highest priority first, then in the order in which they came."""
        return iter(sorted(self._pods.values(), key=lambda pod: -pod.priority))

    def put(self, pod: Pod) -> bool:
        """A pod was added or changed; False where it is not, or no longer, one of these."""
        if not may_be_nominated(pod) or pod.scheduler_name not in self._schedulers:
            return False
        self._pods[pod.uid] = pod
        return True

    def drop(self, uid: PodUid) -> bool:
        """The pod is bound or gone; False where it was not one of these."""
        self._leave(uid)
        return self._pods.pop(uid, None) is not None

    def kind(self, pod: Pod) -> ClaimRequirements | None:
        """What the pod requires; the same object for equal pods.

        ``None`` where that is not known, where a claim is allocated already, where the claims
        request devices of other drivers as well or are too large to be compared with all nodes,
        and for a pod that is none of these any more.
        """
        specs, known = self._specs(pod), self._kinds.get(pod.uid)
        if not specs or pod.constraints is None or pod.uid not in self._pods:
            return None
        if not (requests_only_our_devices(specs, self._classes) and rated_quickly(specs)):
            return None
        if known is not None and known.specs == specs and known.constraints == pod.constraints:
            return known
        self._leave(pod.uid)
        found = ClaimRequirements(specs, pod.constraints)
        users = self._users.setdefault(found, set())
        kind = next((self._kinds[uid] for uid in users), found)
        users.add(pod.uid)
        self._kinds[pod.uid] = kind
        return kind

    def _leave(self, uid: PodUid) -> None:
        """The pod has no kind any more; a kind ends with its last pod."""
        kind = self._kinds.pop(uid, None)
        if kind is not None:
            self._users[kind].remove(uid)
            if not self._users[kind]:
                del self._users[kind]

    def settled(self, uid: PodUid) -> bool:
        """The pod waits, and nothing is to be nominated for it: a claim is allocated already."""
        pod = self._pods.get(uid)
        return pod is not None and self.kind(pod) is None

    def _specs(self, pod: Pod) -> tuple[ClaimSpec, ...]:
        """What the claims request; empty where that is not known, or one is allocated.

        Before kube-controller-manager has made the claims of templates, the templates are read; it
        reports all of a pod's claims at once.
        """
        space, made = pod.namespace, len(pod.claims) > len(pod.named_claims)
        claims = [self._claims.get((space, name)) for name in pod.claims]
        unmade = () if made else pod.claim_templates
        templates = [self._templates.get((space, name)) for name in unmade]
        if any(each is not None and each.allocated for each in claims):
            return ()
        specs = [None if each is None else each.spec for each in (*claims, *templates)]
        return tuple(each for each in specs if each is not None) if all(specs) else ()
