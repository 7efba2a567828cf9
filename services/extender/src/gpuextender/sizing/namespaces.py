"""What namespaces allow: the annotations of their owners, and quotas and limits of GPU memory."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from gpucore.wire.namespaces import (
    LIMITS_PATH,
    NAMESPACES_PATH,
    QUOTAS_PATH,
    CountedResources,
    Namespace,
    decode_limit_range,
    decode_namespace,
    decode_quota,
)
from gpukube.watch.collection import Collection, EventHandler, collection_of

NAMESPACES: Final = collection_of("namespaces", NAMESPACES_PATH, decode_namespace)
QUOTAS: Final = collection_of("resourcequotas", QUOTAS_PATH, decode_quota)
LIMITS: Final = collection_of("limitranges", LIMITS_PATH, decode_limit_range)


class NamespaceAnnotations:
    """Annotations by namespace; ``items`` is ``None`` before the first list."""

    def __init__(self) -> None:
        self.items: dict[str, Mapping[str, str]] | None = None

    def on_replace(self, items: Iterable[Namespace]) -> None:
        """Replace all namespaces."""
        self.items = {each.name: each.annotations for each in items}

    def on_update(self, item: Namespace, line: bytes) -> None:  # noqa: ARG002 - the protocol's
        """Add or replace a namespace."""
        if self.items is not None:
            self.items[item.name] = item.annotations

    def on_delete(self, item: Namespace) -> None:
        """Remove a namespace."""
        if self.items is not None:
            self.items.pop(item.name, None)


class CountingNamespaces:
    """Namespaces in which an object counts a resource; unknown before the first list."""

    def __init__(self, resource: str) -> None:
        self._resource = resource
        self._names: dict[str, set[str]] | None = None

    def __contains__(self, namespace: str) -> bool:
        """Such an object may be in the namespace: one is, or the objects are not known yet."""
        return self._names is None or bool(self._names.get(namespace))

    def on_replace(self, items: Iterable[CountedResources]) -> None:
        """Replace all objects."""
        self._names = {}
        for each in items:
            self._put(each)

    def on_update(self, item: CountedResources, line: bytes) -> None:  # noqa: ARG002 - the protocol's
        """Add or replace an object."""
        self._put(item)

    def on_delete(self, item: CountedResources) -> None:
        """Remove an object."""
        if self._names is not None:
            self._names.get(item.namespace, set()).discard(item.name)

    def _put(self, item: CountedResources) -> None:
        self.on_delete(item)
        if self._names is not None and self._resource in item.resources:
            self._names.setdefault(item.namespace, set()).add(item.name)


class NamespaceRules:
    """Everything that namespaces allow.

    Args:
        resource: of GPU memory.

    Attributes:
        quotas: namespaces with a ResourceQuota of it.
        limits: namespaces with a LimitRange of it.
    """

    def __init__(self, resource: str) -> None:
        self._annotations = NamespaceAnnotations()
        self.quotas = CountingNamespaces(resource)
        self.limits = CountingNamespaces(resource)

    def annotations(self, namespace: str) -> Mapping[str, str] | None:
        """Of a namespace; ``None`` where it is not known."""
        items = self._annotations.items
        return None if items is None else items.get(namespace)

    def followed(self) -> Iterator[tuple[Collection[Any], EventHandler[Any]]]:
        """The collections to follow, each with its handler."""
        yield NAMESPACES, self._annotations
        yield QUOTAS, self.quotas
        yield LIMITS, self.limits
