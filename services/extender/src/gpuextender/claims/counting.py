"""Pods with claims into the mix of pods that usually come, as the informers bring them."""

from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

from gpucore.accounting.claim_offers import Key
from gpucore.claims.arrivals import ClaimArrivals, ClaimSources
from gpucore.claims.objects import CLAIM, CLASS, TEMPLATE, MissingObject
from gpucore.wire.claim.claim_specs import ClaimTemplate, DeviceClass
from gpucore.wire.claim.resource_claims import ResourceClaim
from gpucore.wire.pod.spec import Pod
from gpuextender.claims.nominator import ClaimNominator
from gpuextender.informers import DEVICE_CLASSES, TEMPLATES, Handlers, Informers
from gpukube.watch.collection import KnownObjects

T = TypeVar("T")


class CountedPods:
    """Pods; an event handler."""

    def __init__(self, arrivals: ClaimArrivals) -> None:
        self._arrivals = arrivals

    def on_replace(self, items: Iterable[Pod]) -> None:
        self._arrivals.pods_listed(items)

    def on_update(self, item: Pod, line: bytes) -> None:  # noqa: ARG002 - the protocol's
        self._arrivals.pod_changed(item)

    def on_delete(self, item: Pod) -> None:
        self._arrivals.pod_gone(item.uid)


class AwaitedObjects(Generic[T]):
    """Objects by which pods request GPUs; an event handler behind the one that stores them."""

    def __init__(self, arrivals: ClaimArrivals, name: Callable[[T], MissingObject]) -> None:
        self._arrivals, self._name = arrivals, name

    def on_replace(self, items: Iterable[T]) -> None:
        for item in items:
            self.on_update(item, b"")

    def on_update(self, item: T, line: bytes) -> None:  # noqa: ARG002 - the protocol's
        self._arrivals.object_came(self._name(item))

    def on_delete(self, item: T) -> None:
        """Pods that were counted stay so."""


def count_claims(informers: Informers, nominator: ClaimNominator | None) -> ClaimArrivals:
    """Follow what pods with claims refer to, and count these pods.

    Args:
        nominator: stores the objects; without one, templates and classes are not followed.
    """
    state = informers.state
    claims = KnownObjects[Key, ResourceClaim](_key, _ignore) if not nominator else nominator.claims
    objects = ClaimSources(claims.items, {})
    if nominator is not None:
        templates, classes = nominator.templates, nominator.classes
        objects = ClaimSources(claims.items, templates.items, classes.items)
    arrivals = ClaimArrivals(state.mix.history, objects, state.names)
    if nominator is not None:
        informers.follow(TEMPLATES, Handlers(templates, AwaitedObjects(arrivals, _template)))
        informers.follow(DEVICE_CLASSES, Handlers(classes, AwaitedObjects(arrivals, _class)))
    informers.claims.add(claims)
    informers.claims.add(AwaitedObjects(arrivals, _claim))
    informers.pods.add(CountedPods(arrivals))
    return arrivals


def _key(claim: ResourceClaim) -> Key:
    return claim.namespace, claim.name


def _ignore(_: object) -> None:
    """Nothing waits for the change itself."""


def _claim(found: ResourceClaim) -> MissingObject:
    return MissingObject(CLAIM, found.name, found.namespace)


def _template(found: ClaimTemplate) -> MissingObject:
    return MissingObject(TEMPLATE, found.name, found.namespace)


def _class(found: DeviceClass) -> MissingObject:
    return MissingObject(CLASS, found.name)
