"""Reads a cluster, from a live API server or a snapshot file.

A command lists only the kinds that it needs. A kind that the credentials may not read is recorded
as missing instead of failing the command, since nodes and pods suffice for most commands.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple, Self

import msgspec

from gpucore.wire.errors import WireError
from gpucore.wire.lists import decode_pods
from gpucore.wire.names import CLAIM_DRIVER, UNHEALTHY_NAMESPACE
from gpucore.wire.pod.spec import Pod
from gpuinspect.cluster import snapshots
from gpuinspect.cluster.read_ahead import ReadAhead
from gpuinspect.cluster.snapshots import Arriving, Snapshot
from gpukube.errors import ForbiddenError, InvalidReplyError, KubeError, NotFoundError

if TYPE_CHECKING:  # the import takes a while and a snapshot needs no client
    from gpukube.blocking import BlockingClient

USER_AGENT: Final = "gpushare"

_SHOWN: Final = 60  # bytes of a body that is no list
FORBIDDEN_SECONDS: Final = 600.0
"""Seconds until a list that the credentials may not read is requested again."""
Count = Callable[[int], None]
Objects = list[tuple[str, msgspec.Raw]]


class ListRequest(NamedTuple):
    """A list to read besides nodes and pods.

    Attributes:
        selector: query of the list that narrows it, e.g. ``{"fieldSelector": "..."}``.
        optional: not every API server has the list; without it there are none.
    """

    kind: str
    path: str
    selector: Mapping[str, str] = MappingProxyType({})
    optional: bool = False


CONFIG_MAPS: Final = ListRequest(
    "ConfigMap", f"/api/v1/namespaces/{UNHEALTHY_NAMESPACE}/configmaps"
)
"""Namespace of the legacy ConfigMaps that list unhealthy GPUs."""

RESOURCE_API: Final = "/apis/resource.k8s.io/v1"

CLAIMS: Final = ListRequest("ResourceClaim", f"{RESOURCE_API}/resourceclaims", optional=True)
CLAIM_LISTS: Final = (
    ListRequest(
        "ResourceSlice",
        f"{RESOURCE_API}/resourceslices",
        {"fieldSelector": f"spec.driver={CLAIM_DRIVER}"},
        optional=True,
    ),
    CLAIMS,
)
"""GPUs that nodes offer as claims, and the claims; read wherever GPUs are counted."""

COUNTED: Final = (CONFIG_MAPS, *CLAIM_LISTS)
"""Lists besides nodes and pods that allocations depend on."""

FAILED_SCHEDULING: Final = ListRequest(
    "Event",
    "/api/v1/events",
    {"fieldSelector": "involvedObject.kind=Pod,reason=FailedScheduling"},
)
"""Reason of the schedulers' events for pods that fit on no node."""

NODES: Final = ListRequest("Node", "/api/v1/nodes")
PODS: Final = ListRequest("Pod", "/api/v1/pods")


class ClusterSource(msgspec.Struct, frozen=True):
    """The shared flags that select the source.

    Attributes:
        snapshot: file to read instead of a cluster; ``-`` is standard input.
        timeout_seconds: timeout of a request.
        as_user: user to impersonate; empty for none.
    """

    kubeconfig: Path | None = None
    context: str | None = None
    snapshot: Path | None = None
    timeout_seconds: float = 30.0
    as_user: str = ""

    def read(self, *wanted: ListRequest, count: Count | None = None) -> Snapshot:
        """Nodes and pods, and the ``wanted`` lists where they can be had.

        Args:
            wanted: lists that are of use but not needed.
            count: called with the number of objects of every page that arrives, by two threads.

        Raises:
            InspectError: the file cannot be read.
            KubeError: nodes or pods cannot be read.
            ConfigError: no credentials are found.
        """
        if self.snapshot is not None:
            return snapshots.read(self.snapshot)
        with self.connect() as kube:
            return live(kube, wanted, count=count)

    @contextmanager
    def arriving(self, *wanted: ListRequest) -> Iterator[Snapshot | Arriving]:
        """As :meth:`read`, but the pods of a live cluster come as they are iterated.

        What is done with each is then done while the API server prepares the next.

        Raises:
            InspectError, KubeError, ConfigError: as :meth:`read`.
        """
        if self.snapshot is not None:
            yield snapshots.read(self.snapshot)
            return
        with self.connect() as kube:
            yield _as_they_arrive(kube, wanted)

    def connect(self) -> "BlockingClient":
        """The live API server.

        Raises:
            ConfigError: no credentials are found.
        """
        from gpukube.blocking import BlockingClient  # noqa: PLC0415 - see the top

        return BlockingClient.connect(
            self.kubeconfig,
            context=self.context or "",
            user_agent=USER_AGENT,
            seconds=self.timeout_seconds,
            as_user=self.as_user,
        )


def live(
    kube: "BlockingClient",
    wanted: Sequence[ListRequest] = (),
    *,
    cached: bool = False,
    count: Count | None = None,
) -> Snapshot:
    """The cluster as it is now, or with ``cached`` as the API server last saw it.

    Pods, by far the longest list, are read beside all the others, and while they are decoded.

    Raises:
        KubeError: nodes or pods cannot be read.
    """
    pods = ReadAhead(_pages(kube, PODS, cached=cached, count=count))
    nodes = objects_of(kube, NODES, cached=cached, count=count)
    others = ReadLists.read(kube, nodes, wanted, cached=cached, count=count)
    return others.snapshot((PODS.kind, pod) for page in pods for pod in page)


def live_on_node(kube: "BlockingClient", node: str, wanted: Sequence[ListRequest] = ()) -> Snapshot:
    """One node with its pods as they are now, and the wanted lists; raises as :func:`live`."""
    of_node = NODES._replace(selector={"fieldSelector": f"metadata.name={node}"})
    on_node = PODS._replace(selector={"fieldSelector": f"spec.nodeName={node}"})
    found = objects_of(kube, of_node) + objects_of(kube, on_node)
    return ReadLists.read(kube, found, wanted).snapshot()


def _as_they_arrive(kube: "BlockingClient", wanted: Sequence[ListRequest]) -> Arriving:
    pages = ReadAhead(_bodies(kube, PODS))
    found = ReadLists.read(kube, objects_of(kube, NODES), wanted).snapshot()
    return Arriving(
        nodes=found.nodes,
        raw={kind: raw for kind, raw in found.raw.items() if kind != PODS.kind},
        missing=found.missing,
        pods=_decoded(pages),
    )


def _decoded(pages: Iterable[bytes]) -> Iterator[Pod]:
    for page in pages:
        with _list_in(PODS, page):
            pods = decode_pods(page).items
        yield from pods


class ReadLists(NamedTuple):
    """Objects that were read, each with its kind, and lists that could not be."""

    objects: Objects
    wanted: Sequence[ListRequest]
    missing: dict[str, str]
    unread: set[str]
    forbidden: set[str]

    @classmethod
    def read(
        cls,
        kube: "BlockingClient",
        objects: Objects,
        wanted: Sequence[ListRequest],
        *,
        cached: bool = False,
        count: Count | None = None,
    ) -> Self:
        """The wanted lists as far as they can be read, beside ``objects``."""
        found = cls(objects, wanted, {}, set(), set())
        for each in wanted:
            try:
                objects += objects_of(kube, each, cached=cached, count=count)
            except KubeError as error:
                found.missing[each.kind] = str(error)
                found.unread.add(each.path)
                if isinstance(error, ForbiddenError):
                    found.forbidden.add(each.path)
        return found

    def snapshot(self, pods: Iterable[tuple[str, msgspec.Raw]] = ()) -> Snapshot:
        """The snapshot of these objects and ``pods``.

        Raises:
            InvalidReplyError: an object is not what its kind promises.
        """
        try:
            found = snapshots.gather(chain(self.objects, pods))
        except (msgspec.MsgspecError, WireError) as error:
            what = f"the API server's response cannot be parsed: {error}"
            raise InvalidReplyError(what) from error
        none: dict[str, tuple[msgspec.Raw, ...]] = {each.kind: () for each in self.wanted}
        return msgspec.structs.replace(
            found,
            raw={**none, **found.raw},
            missing=self.missing,
            unread=frozenset(self.unread),
            forbidden=frozenset(self.forbidden),
        )


class LiveReader:
    """Reads a cluster again and again; a list that is forbidden is requested seldom.

    Args:
        wanted: as of :func:`live`.
        clock: seconds that only grow.
    """

    def __init__(
        self,
        kube: "BlockingClient",
        wanted: Sequence[ListRequest],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._kube = kube
        self._wanted = wanted
        self._clock = clock
        self._forbidden: dict[str, tuple[float, str]] = {}

    def __call__(self) -> Snapshot:
        """The cluster as the API server last saw it.

        Raises:
            KubeError: as :func:`live`.
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
        unread = found.unread | later.keys()
        return msgspec.structs.replace(found, missing={**found.missing, **missing}, unread=unread)


def objects_of(
    kube: "BlockingClient",
    wanted: ListRequest,
    *,
    cached: bool = False,
    count: Count | None = None,
) -> Objects:
    """The objects of a list, each with its kind; raises as :func:`listed`."""
    pages = _pages(kube, wanted, cached=cached, count=count)
    return [(wanted.kind, item) for page in pages for item in page]


def listed(
    kube: "BlockingClient", wanted: ListRequest, *, cached: bool = False
) -> Iterator[msgspec.Raw]:
    """The objects of a list, page by page.

    Raises:
        KubeError: it cannot be read.
    """
    for page in _pages(kube, wanted, cached=cached):
        yield from page


class _Items(msgspec.Struct):
    items: list[msgspec.Raw] | None = None


def _pages(
    kube: "BlockingClient",
    wanted: ListRequest,
    *,
    cached: bool = False,
    count: Count | None = None,
) -> Iterator[list[msgspec.Raw]]:
    for body in _bodies(kube, wanted, cached=cached):
        with _list_in(wanted, body):
            page = msgspec.json.decode(body, type=_Items).items or []
        if count is not None:
            count(len(page))
        yield page


def _bodies(
    kube: "BlockingClient", wanted: ListRequest, *, cached: bool = False
) -> Iterator[bytes]:
    try:
        yield from kube.pages(wanted.path, wanted.selector, cached=cached)
    except NotFoundError:
        if not wanted.optional:
            raise


@contextmanager
def _list_in(wanted: ListRequest, body: bytes) -> Iterator[None]:
    try:
        yield
    except (msgspec.MsgspecError, WireError, ValueError) as error:
        what = str(error) if isinstance(error, WireError) else f"not a list: {error}"
        text = body[:_SHOWN].decode(errors="replace").strip()
        raise InvalidReplyError(f"GET {wanted.path}: {what}; it begins with {text!r}") from error
