"""What namespaces allow: the annotations of their owners, and quotas and limits of GPU memory."""

from collections.abc import Callable, Iterable, Iterator, Mapping
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
    """Annotations by namespace."""

    def __init__(self) -> None:
        self.items: dict[str, Mapping[str, str]] = {}

    def on_replace(self, items: Iterable[Namespace]) -> None:
        self.items = {each.name: each.annotations for each in items}

    def on_update(self, item: Namespace, line: bytes) -> None:  # noqa: ARG002 - the protocol's
        self.items[item.name] = item.annotations

    def on_delete(self, item: Namespace) -> None:
        self.items.pop(item.name, None)


class CountingNamespaces:
    """Namespaces in which an object counts a resource."""

    def __init__(self, resource: str) -> None:
        self._resource = resource
        self._names: dict[str, set[str]] = {}

    def __contains__(self, namespace: str) -> bool:
        """Such an object is in the namespace."""
        return bool(self._names.get(namespace))

    def on_replace(self, items: Iterable[CountedResources]) -> None:
        self._names = {}
        for each in items:
            self.on_update(each, b"")

    def on_update(self, item: CountedResources, line: bytes) -> None:  # noqa: ARG002 - the protocol's
        self.on_delete(item)
        if self._resource in item.resources:
            self._names.setdefault(item.namespace, set()).add(item.name)

    def on_delete(self, item: CountedResources) -> None:
        self._names.get(item.namespace, set()).discard(item.name)


class NamespaceRules:
    """Everything that namespaces allow.

    Args:
        resource: of GPU memory.

    Attributes:
        known: all collections were listed; false until somebody follows them.
        quotas: namespaces with a ResourceQuota of it.
        limits: namespaces with a LimitRange of it.
    """

    def __init__(self, resource: str) -> None:
        self._annotations = NamespaceAnnotations()
        self.known: Callable[[], bool] = lambda: False
        self.quotas = CountingNamespaces(resource)
        self.limits = CountingNamespaces(resource)

    def annotations(self, namespace: str) -> Mapping[str, str] | None:
        """Of a namespace; ``None`` where it is not known, or its quotas and limits are not."""
        return self._annotations.items.get(namespace) if self.known() else None

    def followed(self) -> Iterator[tuple[Collection[Any], EventHandler[Any]]]:
        """The collections to follow, each with its handler."""
        yield NAMESPACES, self._annotations
        yield QUOTAS, self.quotas
        yield LIMITS, self.limits
