"""Collections that an informer watches, and the interfaces of its event handlers."""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Final, Generic, Protocol, TypeVar

import msgspec

from gpucore.wire.lists import Page, V, WatchEvent, event_of, page_of

PROBE: Final = "gpushare-version-probe"

K = TypeVar("K")
T = TypeVar("T")
T_contra = TypeVar("T_contra", contravariant=True)


class Collection(msgspec.Struct, Generic[T], frozen=True):
    """A collection of the API server, or a part of one.

    Attributes:
        name: for logs and metrics, e.g. ``pods``.
        path: on the API server, e.g. ``/api/v1/pods``.
        page_of: decodes a list.
        event_of: decodes a line of a watch.
        params: query of lists and watches alike, e.g. a field selector.
        version_path: a path of the same resource where a name is one key of etcd, e.g.
            ``/api/v1/namespaces/default/pods``; an informer reads the current resource version of
            the server there, which costs less than a list. Empty: the informer does not check it.
        version_name: the name that it looks up there; no object needs to have it.
        page_size: maximum number of objects in a page of a later list, for a process whose memory
            does not hold many large ones; 0: as many as usual.
    """

    name: str
    path: str
    page_of: Callable[[bytes], Page[T]]
    event_of: Callable[[bytes], WatchEvent[T]]
    params: dict[str, str] = msgspec.field(default_factory=dict)
    version_path: str = ""
    version_name: str = PROBE
    page_size: int = 0


def collection_of(
    name: str,
    path: str,
    decode: Callable[[msgspec.Raw], V],
    *,
    params: dict[str, str] | None = None,
    version_path: str = "",
) -> Collection[V]:
    """A collection of objects that ``decode`` reads one by one; the rest as in the class."""
    page, event = partial(page_of, decode=decode), partial(event_of, decode=decode)
    return Collection(name, path, page, event, params or {}, version_path)


class EventHandler(Protocol[T_contra]):
    """Receives the objects of a collection; called on the event loop, must not block."""

    def on_replace(self, items: Iterable[T_contra]) -> None:
        """Replace everything by ``items``: objects that are not among them are gone."""
        ...

    def on_update(self, item: T_contra, line: bytes) -> None:
        """Add or change an object; it may be unchanged.

        Args:
            line: of the watch; empty where the object was listed.
        """
        ...

    def on_delete(self, item: T_contra) -> None:
        """Remove an object; ``item`` is its last known state."""
        ...


class InformerObserver(Protocol):
    """Counts what informers do; ``name`` is the name of the collection."""

    def listed(self, name: str) -> None:
        """A list is complete."""
        ...

    def failed(self, name: str) -> None:
        """A list or a watch failed."""
        ...


class NoObserver:
    """Counts nothing."""

    def listed(self, name: str) -> None:
        """See :class:`InformerObserver`."""

    def failed(self, name: str) -> None:
        """See :class:`InformerObserver`."""


class KnownObjects(Generic[K, T]):
    """The objects of a collection by key; an event handler.

    Args:
        changed: called after each change, with the object where one was added or changed.

    Attributes:
        items: by key; always the same mapping.
    """

    def __init__(self, key: Callable[[T], K], changed: Callable[[T | None], object]) -> None:
        self._key, self._changed = key, changed
        self.items: dict[K, T] = {}

    def on_replace(self, items: Iterable[T]) -> None:
        self.items.clear()
        self.items.update({self._key(each): each for each in items})
        for each in self.items.values():
            self._changed(each)
        self._changed(None)

    def on_update(self, item: T, line: bytes) -> None:  # noqa: ARG002 - the protocol's
        self.items[self._key(item)] = item
        self._changed(item)

    def on_delete(self, item: T) -> None:
        self.items.pop(self._key(item), None)
        self._changed(None)
