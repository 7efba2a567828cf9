"""Pages of a list and events of a watch, as the API server streams them.

Of most kinds each object is decoded alone, and one that cannot be decoded is left out: its author
hides no object of others. A page of pods or nodes is decoded as a whole, because a pod that is left
out would seem to hold no GPU; the API server validates each field of them that is read.
"""

from collections.abc import Callable
from enum import StrEnum
from typing import Generic, Protocol, TypeVar

import msgspec

from gpucore.wire import constraints
from gpucore.wire.errors import WireError, decoded, each_decoded, name_of
from gpucore.wire.node import spec as nodespec
from gpucore.wire.node.spec import Node
from gpucore.wire.pod import spec as podspec
from gpucore.wire.pod.spec import Pod

T = TypeVar("T")


class Versioned(Protocol):
    """An object of the API server."""

    @property
    def resource_version(self) -> str:
        """Resource version of the object."""
        ...


V = TypeVar("V", bound=Versioned)


class Page(msgspec.Struct, Generic[T], frozen=True):
    """One page of a list.

    Attributes:
        resource_version: where a watch after this list starts.
        continue_token: for the next page; empty on the last.
        unreadable: objects that were left out, each with the reason.
    """

    items: tuple[T, ...]
    resource_version: str = ""
    continue_token: str = ""
    unreadable: tuple[str, ...] = ()


class WatchEventType(StrEnum):
    """The type of a watch event."""

    ADDED = "ADDED"
    MODIFIED = "MODIFIED"
    DELETED = "DELETED"
    BOOKMARK = "BOOKMARK"
    ERROR = "ERROR"


class WatchEvent(msgspec.Struct, Generic[T], frozen=True):
    """One line of a watch.

    Attributes:
        item: the object; ``None`` for BOOKMARK and ERROR, and for an object that is left out.
        resource_version: of the object, or of the bookmark.
        unreadable: the object that was left out, with the reason; empty for none.
    """

    kind: WatchEventType
    item: T | None = None
    resource_version: str = ""
    unreadable: str = ""


class _ListMetadata(msgspec.Struct, rename="camel"):
    resource_version: str = ""
    continue_token: str | None = msgspec.field(name="continue", default=None)


class _List(msgspec.Struct, Generic[T]):
    metadata: _ListMetadata
    items: list[T] | None = None


class _Line(msgspec.Struct):
    type: WatchEventType
    object: msgspec.Raw


class _VersionMetadata(msgspec.Struct, rename="camel"):
    resource_version: str = ""


class _Versioned(msgspec.Struct):
    metadata: _VersionMetadata


_RAW_ITEMS = msgspec.json.Decoder(_List[msgspec.Raw])
_PODS = msgspec.json.Decoder(_List[podspec.PodObject])
_CONSTRAINED_PODS = msgspec.json.Decoder(_List[constraints.ConstrainedPodObject])
_NODES = msgspec.json.Decoder(_List[nodespec.NodeObject])
_LINE = msgspec.json.Decoder(_Line)
_VERSIONED = msgspec.json.Decoder(_Versioned)


def decode_pods(raw: bytes) -> Page[Pod]:
    """Read a page of a pod list.

    Raises:
        WireError: the bytes are no pod list.
    """
    page = decoded(_PODS, raw, "invalid list of pods")
    return _page(tuple(map(podspec.flat, page.items or ())), page.metadata)


def decode_pods_with_constraints(raw: bytes) -> Page[Pod]:
    """Read a page of a pod list, with the constraints of each pod.

    Raises:
        WireError: the bytes are no pod list.
    """
    page = decoded(_CONSTRAINED_PODS, raw, "invalid list of pods")
    return _page(tuple(map(constraints.flat, page.items or ())), page.metadata)


def decode_nodes(raw: bytes) -> Page[Node]:
    """Read a page of a node list.

    Raises:
        WireError: the bytes are no node list.
    """
    page = decoded(_NODES, raw, "invalid list of nodes")
    return _page(tuple(map(nodespec.flat, page.items or ())), page.metadata)


def page_of(raw: bytes, decode: Callable[[msgspec.Raw], T]) -> Page[T]:
    """Read a page of a list of objects that ``decode`` reads.

    Raises:
        WireError: the bytes are no list.
    """
    page = decoded(_RAW_ITEMS, raw, "no list")
    items, unreadable = each_decoded(page.items or (), decode)
    return _page(items, page.metadata, unreadable)


def _page(
    items: tuple[T, ...], metadata: _ListMetadata, unreadable: tuple[str, ...] = ()
) -> Page[T]:
    token = metadata.continue_token or ""
    return Page(items, metadata.resource_version, token, unreadable)


def decode_pod_event(raw: bytes) -> WatchEvent[Pod]:
    """Read one line of a watch on pods.

    Raises:
        WireError: the bytes are no event of a pod.
    """
    return _event(_line(raw), podspec.decode_pod)


def decode_pod_event_with_constraints(raw: bytes) -> WatchEvent[Pod]:
    """Read one line of a watch on pods, with the constraints of the pod.

    Raises:
        WireError: the bytes are no event of a pod.
    """
    return _event(_line(raw), constraints.decode_pod)


def decode_node_event(raw: bytes) -> WatchEvent[Node]:
    """Read one line of a watch on nodes.

    Raises:
        WireError: the bytes are no event of a node.
    """
    return _event(_line(raw), nodespec.decode_node)


def event_of(raw: bytes, decode: Callable[[msgspec.Raw], V]) -> WatchEvent[V]:
    """Read one line of a watch on objects that ``decode`` reads.

    Raises:
        WireError: the bytes are no event, or one of an object without metadata.
    """
    line = _line(raw)
    try:
        return _event(line, decode)
    except WireError as error:
        version = decoded(_VERSIONED, line.object, "no event").metadata.resource_version
        reason = f"{name_of(line.object)}: {error}"
        return WatchEvent(line.type, resource_version=version, unreadable=reason)


def _line(raw: bytes) -> _Line:
    return decoded(_LINE, raw, "no event")


def _event(line: _Line, decode: Callable[[msgspec.Raw], V]) -> WatchEvent[V]:
    if line.type is WatchEventType.ERROR:
        return WatchEvent(line.type)
    if line.type is WatchEventType.BOOKMARK:
        version = decoded(_VERSIONED, line.object, "no event").metadata.resource_version
        return WatchEvent(line.type, resource_version=version)
    item = decode(line.object)
    return WatchEvent(line.type, item, item.resource_version)
