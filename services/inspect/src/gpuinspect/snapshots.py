"""A cluster as one file: what ``kubectl get nodes,pods -A -o json`` prints.

Any other kind in the list (events, config maps, daemon sets) is kept as it is for the commands
that can use it, so a dump of ``gpushare snapshot`` answers more than the two kinds alone.
"""

import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

import msgspec

from gpucore.wire.errors import WireError
from gpucore.wire.nodes import Node, decode_node
from gpucore.wire.podspec import Pod, decode_pod
from gpuinspect.errors import SnapshotError

STDIN: Final = Path("-")


class Snapshot(msgspec.Struct, frozen=True):
    """The objects of a cluster at one moment.

    Attributes:
        others: raw objects of every other kind, by kind.
        missing: kinds that could not be read, with the reason; not the same as there being none.
    """

    nodes: tuple[Node, ...]
    pods: tuple[Pod, ...]
    others: Mapping[str, tuple[msgspec.Raw, ...]] = msgspec.field(default_factory=dict)
    missing: Mapping[str, str] = msgspec.field(default_factory=dict)

    def node(self, name: str) -> Node | None:
        """The node of this name."""
        return next((node for node in self.nodes if node.name == name), None)


class _List(msgspec.Struct):
    kind: str = ""
    items: list[msgspec.Raw] | None = None


class _Kind(msgspec.Struct):
    kind: str = ""


_LIST: Final = msgspec.json.Decoder(_List)
_KIND: Final = msgspec.json.Decoder(_Kind)


def read(path: Path) -> Snapshot:
    """The snapshot in a file, or on standard input for ``-``.

    Raises:
        SnapshotError: it cannot be read or is no list of Kubernetes objects.
    """
    try:
        raw = sys.stdin.buffer.read() if path == STDIN else path.read_bytes()
    except OSError as error:
        raise SnapshotError(f"cannot read the snapshot {path}: {error.strerror}") from error
    try:
        return decode(raw)
    except (msgspec.MsgspecError, WireError) as error:
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
    """A snapshot of objects, each with the kind its list says (items of typed lists say none).

    Raises:
        msgspec.MsgspecError, WireError: an object is not what its kind promises.
    """
    nodes: list[Node] = []
    pods: list[Pod] = []
    others: dict[str, list[msgspec.Raw]] = {}
    for listed, raw in objects:
        kind = _KIND.decode(raw).kind or listed
        if kind == "Node":
            nodes.append(decode_node(raw))
        elif kind == "Pod":
            pods.append(decode_pod(raw))
        else:
            others.setdefault(kind, []).append(raw)
    kept = {kind: tuple(raws) for kind, raws in others.items()}
    return Snapshot(tuple(nodes), tuple(pods), kept)
