"""The pods whose GPUs are requested by claims, counted for the mix of pods that usually come.

A pod counts once what its claims request is known: by the claims themselves, or by the templates
that they are made from. Pods, claims, templates and classes may come in any order, so a pod for
which something is missing waits for it. What waits is bounded; a pod that is deleted before it is
counted does not count.

Events cost next to nothing: the pods are counted in steps beside the requests.
"""

from collections import OrderedDict
from collections.abc import Iterable, Mapping
from typing import Final, Protocol

import msgspec

from gpucore.accounting.claim_offers import Key
from gpucore.claims.objects import CLAIM, CLASS, TEMPLATE, ClaimedGpus, MissingObject, claimed_gpus
from gpucore.model.constraints import UNCONSTRAINED, Resources
from gpucore.scheduling.host_rooms import request_on_host
from gpucore.steps import Steps
from gpucore.units import PodUid
from gpucore.wire.claim.claim_specs import ClaimSpec, ClaimTemplate, DeviceClass
from gpucore.wire.claim.resource_claims import ResourceClaim
from gpucore.wire.names import Names
from gpucore.wire.pod.spec import Pod, created
from gpucore.wire.whole_requests import host_requests, pod_request_of
from gpucore.workload.arrivals import Arrival, NodeLabels
from gpucore.workload.pod_mix import PodKind

MOST_WAITING: Final = 20_000
"""Pods that wait for an object; beyond that, those that have waited longest are dropped."""
MOST_CLAIMS: Final = 32
"""Claims of one pod; a pod with more is not counted."""
PODS_A_STEP: Final = 10


class ArrivalCounter(Protocol):
    """Where pods are counted once, by their UID."""

    def __contains__(self, uid: PodUid, /) -> bool:
        """Whether the pod is counted."""

    def note(self, uid: PodUid, arrival: Arrival) -> None:
        """Count a pod; one that is counted stays as it is."""


class ClaimSources(msgspec.Struct, frozen=True):
    """The objects by which pods request GPUs; the owner changes these mappings.

    Attributes:
        classes: ``None`` where they are not read: then the names of the chart decide.
    """

    claims: Mapping[Key, ResourceClaim]
    templates: Mapping[Key, ClaimTemplate]
    classes: Mapping[str, DeviceClass] | None = None


class _ClaimPod(msgspec.Struct, frozen=True):
    """What of a pod is needed to count it.

    Attributes:
        named: names of claims in its specification.
        made: names of the claims that were made from the templates; empty before that.
    """

    uid: PodUid
    namespace: str
    named: tuple[str, ...]
    made: tuple[str, ...]
    templates: tuple[str, ...]
    requests: Resources
    selector: NodeLabels
    created: float


_Waiting = tuple[_ClaimPod, tuple[MissingObject, ...]]


class ClaimArrivals:
    """Counts pods with claims.

    Args:
        history: where they are counted.
        names: of extended resources; pods that request these are counted elsewhere.
        limit: maximum number of pods that wait for an object.
    """

    def __init__(
        self,
        history: ArrivalCounter,
        objects: ClaimSources,
        names: Names,
        *,
        limit: int = MOST_WAITING,
    ) -> None:
        self._history, self._objects, self._names = history, objects, names
        self._limit = limit
        self._ready: OrderedDict[PodUid, Pod] = OrderedDict()
        self._came: dict[MissingObject, None] = {}
        self._waiting: OrderedDict[PodUid, _Waiting] = OrderedDict()
        self._missing: dict[MissingObject, dict[PodUid, None]] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def pods_listed(self, pods: Iterable[Pod]) -> None:
        """These are all pods."""
        listed = {pod.uid: pod for pod in pods}
        for uid in (self._waiting.keys() | self._ready.keys()) - listed.keys():
            self.pod_gone(uid)
        for pod in listed.values():
            self.pod_changed(pod)

    def pod_changed(self, pod: Pod) -> None:
        if (pod.claims or pod.claim_templates) and pod.uid not in self._history:
            self._ready[pod.uid] = pod

    def pod_gone(self, uid: PodUid) -> None:
        """A pod was deleted; one that was counted stays so."""
        self._ready.pop(uid, None)
        self._forget(uid)

    def object_came(self, found: MissingObject) -> None:
        """A claim, a template or a class was added or changed."""
        if found in self._missing:
            self._came[found] = None

    def count(self) -> Steps[None]:
        """Count the pods of which all is known now, in steps."""
        while self._came:
            found, _ = self._came.popitem()
            for number, uid in enumerate(list(self._missing.get(found, ()))):
                if uid in self._waiting:
                    self._count(self._waiting[uid][0])
                if number % PODS_A_STEP == 0:
                    yield
        number = 0
        while self._ready:
            _, pod = self._ready.popitem(last=False)
            self._count_pod(pod)
            number += 1
            if number % PODS_A_STEP == 0:
                yield

    def _count_pod(self, pod: Pod) -> None:
        self._forget(pod.uid)
        if len(pod.claims) <= MOST_CLAIMS and pod_request_of(pod, self._names) is None:
            self._count(_claim_pod(pod, self._names))

    def _count(self, pod: _ClaimPod) -> None:
        """Count the pod, or let it wait for what is missing."""
        self._forget(pod.uid)
        specs = self._specs(pod)
        missing = self._missing_for(pod) if specs is None else self._missing_classes(specs)
        if missing:
            self._wait(pod, missing)
        elif specs and (found := claimed_gpus(specs, self._objects.classes or {})):
            self._history.note(pod.uid, _arrival(pod, found))

    def _forget(self, uid: PodUid) -> None:
        _, missing = self._waiting.pop(uid, (None, ()))
        for each in missing:
            waiting = self._missing[each]
            del waiting[uid]
            if not waiting:
                del self._missing[each]

    def _wait(self, pod: _ClaimPod, missing: tuple[MissingObject, ...]) -> None:
        if len(self._waiting) >= self._limit:
            self._forget(next(iter(self._waiting)))
        self._waiting[pod.uid] = pod, missing
        for each in missing:
            self._missing.setdefault(each, {})[pod.uid] = None

    def _specs(self, pod: _ClaimPod) -> tuple[ClaimSpec, ...] | None:
        """What its claims request; ``None`` where that is not known."""
        named = self._of_claims(pod.namespace, pod.named)
        made = self._of_claims(pod.namespace, pod.made) if pod.made else None
        if made is None:
            made = self._of_templates(pod)
        return None if named is None or made is None else (*named, *made)

    def _of_claims(self, namespace: str, names: tuple[str, ...]) -> tuple[ClaimSpec, ...] | None:
        found = [self._objects.claims.get((namespace, name)) for name in names]
        specs = [claim.spec for claim in found if claim is not None and claim.spec is not None]
        return tuple(specs) if len(specs) == len(names) else None

    def _of_templates(self, pod: _ClaimPod) -> tuple[ClaimSpec, ...] | None:
        found = [self._objects.templates.get((pod.namespace, name)) for name in pod.templates]
        specs = [template.spec for template in found if template is not None]
        return tuple(specs) if len(specs) == len(found) else None

    def _missing_for(self, pod: _ClaimPod) -> tuple[MissingObject, ...]:
        """Claims and templates that it names and that are not known."""
        space, known = pod.namespace, self._objects
        claims = (name for name in (*pod.named, *pod.made) if (space, name) not in known.claims)
        names = (name for name in pod.templates if (space, name) not in known.templates)
        found = (
            *(MissingObject(CLAIM, name, space) for name in claims),
            *(MissingObject(TEMPLATE, name, space) for name in names),
        )
        return tuple(dict.fromkeys(found))

    def _missing_classes(self, specs: tuple[ClaimSpec, ...]) -> tuple[MissingObject, ...]:
        known = self._objects.classes
        if known is None:
            return ()
        choices = (each for s in specs for request in s.requests for each in request.choices)
        names = dict.fromkeys(each.device_class for each in choices)
        return tuple(MissingObject(CLASS, name) for name in names if name not in known)


def _claim_pod(pod: Pod, names: Names) -> _ClaimPod:
    found = pod.constraints or UNCONSTRAINED
    return _ClaimPod(
        uid=pod.uid,
        namespace=pod.namespace,
        named=pod.named_claims,
        made=tuple(name for name in pod.claims if name not in pod.named_claims),
        templates=pod.claim_templates,
        requests=host_requests(pod, names),
        selector=NodeLabels(found.node_selector, found.affinity),
        created=created(pod),
    )


def _arrival(pod: _ClaimPod, found: ClaimedGpus) -> Arrival:
    host = request_on_host(pod.requests)
    kind = PodKind(
        gpus=found.gpus, core=found.core, cpu_milli=host.cpu_milli, memory_mib=host.memory_mib
    )
    return Arrival(pod.namespace, kind, pod.selector, pod.created, found.memory_mib)
