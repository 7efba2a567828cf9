"""Where the commands read a cluster from: a live API server or a snapshot file, alike.

Only what a command needs is asked for; a kind that the credentials may not read is noted as missing
instead of failing the command, since nodes and pods answer most questions.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from gpucore.wire.errors import WireError
from gpucore.wire.names import UNHEALTHY_NAMESPACE
from gpuinspect import snapshots
from gpuinspect.errors import ClusterError, ForbiddenError, NotFoundError
from gpuinspect.snapshots import Snapshot

if TYPE_CHECKING:  # the client takes half a second to import and a snapshot needs none
    from gpuinspect.kube import Kube


FORBIDDEN_SECONDS: Final = 600.0
"""Seconds until a list that the credentials may not read is requested again."""


class Wanted(NamedTuple):
    """A list to read besides nodes and pods.

    Attributes:
        selector: query of the list that narrows it, e.g. ``{"fieldSelector": "..."}``.
    """

    kind: str
    path: str
    selector: Mapping[str, str] = MappingProxyType({})


CONFIG_MAPS: Final = Wanted("ConfigMap", f"/api/v1/namespaces/{UNHEALTHY_NAMESPACE}/configmaps")
"""Where the legacy way to say that a card is unhealthy is found."""

FAILED_SCHEDULING: Final = Wanted(
    "Event",
    "/api/v1/events",
    {"fieldSelector": "involvedObject.kind=Pod,reason=FailedScheduling"},
)
"""What schedulers say about pods that fit nowhere."""

_ALWAYS: Final = (Wanted("Node", "/api/v1/nodes"), Wanted("Pod", "/api/v1/pods"))


class _Items(msgspec.Struct):
    items: list[msgspec.Raw] | None = None


class Source(msgspec.Struct, frozen=True):
    """What the shared flags say about where to read.

    Attributes:
        snapshot: file to read instead of a cluster; ``-`` is standard input.
        timeout: seconds one request may take.
    """

    kubeconfig: Path | None = None
    context: str | None = None
    snapshot: Path | None = None
    timeout: float = 30.0

    def read(self, *wanted: Wanted) -> Snapshot:
        """Nodes and pods, and the ``wanted`` lists where they can be had.

        Raises:
            InspectError: neither cluster nor file can be read.
        """
        if self.snapshot is not None:
            return snapshots.read(self.snapshot)
        return live(self.connect(), wanted)

    def connect(self) -> "Kube":
        """The live API server.

        Raises:
            ClusterError: no credentials are found.
        """
        from gpuinspect.kube import Kube  # noqa: PLC0415 - see the top

        return Kube.connect(kubeconfig=self.kubeconfig, context=self.context, timeout=self.timeout)


def live(kube: "Kube", wanted: Sequence[Wanted] = (), *, cached: bool = False) -> Snapshot:
    """The cluster as it is now, or with ``cached`` as the API server last saw it.

    Raises:
        ClusterError: nodes or pods cannot be read.
    """
    objects = [(each.kind, item) for each in _ALWAYS for item in _listed(kube, each, cached=cached)]
    missing: dict[str, str] = {}
    forbidden: set[str] = set()
    for each in wanted:
        try:
            objects += [(each.kind, item) for item in _listed(kube, each, cached=cached)]
        except (ClusterError, NotFoundError) as error:
            missing[each.kind] = str(error)
            forbidden |= {each.path} if isinstance(error, ForbiddenError) else set()
    try:
        found = snapshots.gather(objects)
    except (msgspec.MsgspecError, WireError) as error:
        raise ClusterError(f"the API server's answer cannot be read: {error}") from error
    none: dict[str, tuple[msgspec.Raw, ...]] = {each.kind: () for each in wanted}
    return msgspec.structs.replace(
        found, raw={**none, **found.raw}, missing=missing, forbidden=frozenset(forbidden)
    )


class LiveReader:
    """Reads a cluster again and again; a list that is forbidden is requested seldom.

    Args:
        kube: the API server.
        wanted: as of :func:`live`.
        clock: seconds that only grow.
    """

    def __init__(
        self, kube: "Kube", wanted: Sequence[Wanted], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._kube = kube
        self._wanted = wanted
        self._clock = clock
        self._forbidden: dict[str, tuple[float, str]] = {}

    def __call__(self) -> Snapshot:
        """The cluster as the API server last saw it.

        Raises:
            ClusterError: as :func:`live`.
        """
        now = self._clock()
        later = {path: why for path, (until, why) in self._forbidden.items() if now < until}
        found = live(self._kube, [w for w in self._wanted if w.path not in later], cached=True)
        self._forbidden |= {
            each.path: (now + FORBIDDEN_SECONDS, found.missing[each.kind])
            for each in self._wanted
            if each.path in found.forbidden
        }
        missing = {each.kind: later[each.path] for each in self._wanted if each.path in later}
        return msgspec.structs.replace(found, missing={**found.missing, **missing})


def _listed(kube: "Kube", wanted: Wanted, *, cached: bool) -> Iterator[msgspec.Raw]:
    for page in kube.pages(wanted.path, cached=cached, **wanted.selector):
        yield from msgspec.json.decode(page, type=_Items).items or ()
