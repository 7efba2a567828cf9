"""A cluster as one file: what ``kubectl get nodes,pods -A -o json`` prints.

Any other kind in the list (events, config maps, daemon sets) is kept for the commands that can use
it, so a dump of ``gpushare snapshot`` answers more than the two kinds alone.
"""

import errno
import gc
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from gpucore.units import PodUid
from gpucore.wire.errors import WireError, each_decoded, parsable
from gpucore.wire.node.spec import Node, decode_node
from gpucore.wire.pod.scheduler_events import PodEvents, events_by_pod
from gpucore.wire.pod.spec import Pod, decode_pod
from gpuinspect.errors import SnapshotError

T = TypeVar("T")
STDIN: Final = Path("-")


class ListedObjects(msgspec.Struct, frozen=True, kw_only=True):
    """The objects of a cluster at one moment, but for its pods.

    Attributes:
        raw: the objects as they came, by kind; nodes in the order above.
        missing: kinds that could not be read, with the reason; not the same as there being none.
        unread: paths of lists that could not be read.
        forbidden: those of them that the credentials may not read.
    """

    nodes: tuple[Node, ...]
    raw: Mapping[str, tuple[msgspec.Raw, ...]] = msgspec.field(default_factory=dict)
    missing: Mapping[str, str] = msgspec.field(default_factory=dict)
    unread: frozenset[str] = frozenset()
    forbidden: frozenset[str] = frozenset()

    def all(self, kind: str) -> tuple[msgspec.Raw, ...]:
        """The raw objects of a kind."""
        return self.raw.get(kind, ())

    def readable(self, kind: str, decode: Callable[[msgspec.Raw], T]) -> tuple[T, ...]:
        """The objects of a kind that tenants write; one that ``decode`` cannot read is left out."""
        return each_decoded(self.all(kind), decode)[0]

    def was_read(self, kind: str) -> bool:
        """Objects of this kind were read, so that none here means none there."""
        return kind in self.raw and kind not in self.missing


class Snapshot(ListedObjects, frozen=True, kw_only=True, dict=True):
    """The objects of a cluster at one moment; ``raw`` has the pods in the order of ``pods``."""

    pods: tuple[Pod, ...]

    def raw_pods(self) -> Iterator[tuple[Pod, msgspec.Raw]]:
        """Every pod with its object."""
        return zip(self.pods, self.all("Pod"), strict=True)

    @cached_property
    def raw_by_uid(self) -> Mapping[PodUid, msgspec.Raw]:
        """The object of every pod: some answers need those of thousands."""
        return {pod.uid: raw for pod, raw in self.raw_pods()}

    @cached_property
    def events(self) -> PodEvents:
        """The events by their object; decoded once for all pods.

        Raises:
            WireError: an event is none of the Kubernetes API.
        """
        return events_by_pod(self.all("Event"))


class Arriving(ListedObjects, frozen=True, kw_only=True):
    """A cluster while its pods are still being read; ``raw`` has no pods.

    Attributes:
        pods: each as soon as it is there, once; raises as :func:`~gpuinspect.cluster.collect.live`.
    """

    pods: Iterator[Pod]


class _List(msgspec.Struct):
    kind: str = ""
    items: list[msgspec.Raw] | None = None


class _Kind(msgspec.Struct):
    kind: str = ""


_BEGINNING: Final = re.compile(
    rb'\{\s*"apiVersion"\s*:\s*"[^"\\]*"\s*,\s*"kind"\s*:\s*"([A-Za-z]+)"'
)
"""How the API server and kubectl begin an object; saves reading all of it for its kind."""

_LIST: Final = msgspec.json.Decoder(_List)
_KIND: Final = msgspec.json.Decoder(_Kind)


def read(path: Path) -> Snapshot:
    """The snapshot in a file, or on standard input for ``-``.

    Raises:
        SnapshotError: it cannot be read or is no list of Kubernetes objects.
    """
    try:
        raw = content(path)
    except OSError as error:
        raise SnapshotError(f"cannot read the snapshot {path}: {error.strerror}") from error
    try:
        return decode(parsable(raw))
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        wanted = "what 'kubectl get nodes,pods -A -o json' prints"
        raise SnapshotError(f"{path} is not {wanted}: {error}") from error


def decode(raw: bytes) -> Snapshot:
    """The objects of a list.

    Raises:
        msgspec.MsgspecError, WireError: the bytes are no list of Kubernetes objects.
    """
    page = _LIST.decode(raw)
    if page.items is None:
        raise WireError(f"it is a {page.kind or 'document'} without items")
    return gather((page.kind.removesuffix("List"), item) for item in page.items)


def gather(objects: Iterable[tuple[str, msgspec.Raw]]) -> Snapshot:
    """A snapshot of objects, each with the kind of its list (a list of mixed kinds has none).

    Each is decoded as it comes.

    Raises:
        msgspec.MsgspecError, WireError: an object is not what its kind promises.
    """
    kinds: dict[str, list[msgspec.Raw]] = {"Node": [], "Pod": []}
    nodes: list[Node] = []
    pods: list[Pod] = []
    with uncollected():
        for listed, raw in objects:
            kind = listed or _kind_of(raw)
            kinds.setdefault(kind, []).append(raw)
            if kind == "Pod":
                pods.append(decode_pod(raw))
            elif kind == "Node":
                nodes.append(decode_node(raw))
        return Snapshot(
            nodes=tuple(nodes),
            pods=tuple(pods),
            raw={kind: tuple(raws) for kind, raws in kinds.items()},
        )


def _kind_of(raw: msgspec.Raw) -> str:
    begun = _BEGINNING.match(raw)
    return begun[1].decode() if begun else _KIND.decode(raw).kind


@contextmanager
def uncollected() -> Iterator[None]:
    """Hold the garbage collector back while the block runs, in all threads of the process.

    All that is made while a whole cluster is read is kept. The collector would look through tens of
    thousands of new objects again and again and find none to free, which is a sixth of the time of
    ``gpushare inspect`` on 1,000 nodes.
    """
    held = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if held:
            gc.enable()


@contextmanager
def uncollected_for_good() -> Iterator[None]:
    """As :func:`uncollected`, and no later collection looks through what the block has made.

    For commands that print it and end; the first collection afterwards would look through all.
    """
    with uncollected():
        yield
        gc.freeze()


def content(path: Path) -> bytes:
    """The content of a file, or of standard input for ``-``.

    Raises:
        OSError: it cannot be read, or standard input is closed.
    """
    if path != STDIN:
        return path.read_bytes()
    if sys.stdin is None:
        raise OSError(errno.EBADF, "standard input is closed")
    return sys.stdin.buffer.read()
