"""Events with the recommended size, for owners who chose the mode ``recommend``.

Each namespace has its time of the day, at which its running pods are listed once. An event is about
a pod of the workload, whose UID ``kubectl describe`` goes by. Its name is made from the workload
and the day, so that the API server refuses a second one, of this replica or of another.
"""

import asyncio
import socket
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from datetime import UTC, datetime
from hashlib import sha256
from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec
import structlog

from gpucore.accounting.node_info import NodeInfo, common_unit, gpu_sizes
from gpucore.explain.sizing import sizing_event
from gpucore.sizing.evidence import SizingRules
from gpucore.sizing.known_histories import KnownHistories
from gpucore.sizing.recommendation import Recommendation, SizingAdvice, recommend
from gpucore.sizing.sizing_options import SizingMode, sizing_options
from gpucore.sizing.usage_history import UsageHistory, WorkloadKey
from gpucore.units import MemoryUnit
from gpucore.wire.errors import WireError
from gpucore.wire.pod.controllers import controller_of, workload_of
from gpucore.wire.pod.spec import Pod, decode_pod
from gpuextender.sizing.namespaces import NamespaceRules
from gpuextender.sizing.reader import Connect
from gpukube.errors import ConfigError, ConflictError, KubeError
from gpukube.events import EventSource, ObjectReference, event_body, event_path
from gpukube.plugin_pods import pods_in

if TYPE_CHECKING:  # the import takes a while, and most processes record no such events
    from gpukube.blocking import BlockingClient

RECOMMENDED: Final = "GpuMemorySizeRecommended"
COMPONENT: Final = "gpushare-webhook"
DAY_SECONDS: Final = 86400
CHECK_SECONDS: Final = 300.0
SLOT_SECONDS: Final = 1200
"""Shorter than the API server keeps events, so that a restarted replica finds that of the day."""
MOST_EVENTS: Final = 100
"""Of one namespace a day: the workloads that would free most."""
MOST_PAGES: Final = 20
"""Of the pods of one namespace, with 500 each."""

log = structlog.get_logger(__name__)


class _Sizes(NamedTuple):
    """What sizes are counted in."""

    unit: MemoryUnit
    rules: SizingRules


class _Measured(NamedTuple):
    """What was measured of a container of a workload; ``whole``: no node is missing."""

    histories: tuple[UsageHistory, ...]
    whole: bool


class SizeEvents:
    """Records at most one event a day for each container of a workload.

    Args:
        namespaces: what their owners allow.
        connect: a client of the API server for one round.
        clock: Unix seconds.
        monotonic: seconds of the clock of the histories.
    """

    def __init__(
        self,
        known: KnownHistories,
        namespaces: NamespaceRules,
        connect: Connect,
        rules: SizingRules,
        *,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._known, self._namespaces, self._connect = known, namespaces, connect
        self._rules, self._clock, self._monotonic = rules, clock, monotonic
        self._source = EventSource(COMPONENT, socket.gethostname(), may_patch=False)
        self._done: dict[str, int] = {}

    async def run(self, node_infos: Callable[[], Collection[NodeInfo]]) -> None:
        """Record events until cancelled.

        Args:
            node_infos: state of all nodes; none while it is unknown.
        """
        while True:
            await self.look(node_infos())
            await asyncio.sleep(CHECK_SECONDS)

    async def look(self, node_infos: Collection[NodeInfo]) -> None:
        """Record the events that are due; what fails is tried again while its slot lasts."""
        unit, now = common_unit(node_infos), self._clock()
        due = self._due(now)
        if unit is None or not due:
            return
        sizes = gpu_sizes(node_infos, unit)
        counted = _Sizes(unit, msgspec.structs.replace(self._rules, gpu_sizes=sizes))
        day = int(now // DAY_SECONDS)
        self._done = {name: last for name, last in self._done.items() if last == day}
        try:
            await asyncio.to_thread(self._record, due, counted, day)
        except (KubeError, ConfigError, WireError, ValueError) as error:
            log.warning("recommended sizes are not recorded", why=str(error))

    def _due(self, now: float) -> dict[str, dict[WorkloadKey, _Measured]]:
        """What was measured by namespace, where it is time and nothing was recorded today."""
        day, second = divmod(int(now), DAY_SECONDS)
        found: dict[str, dict[WorkloadKey, _Measured]] = {}
        for key in self._known.workloads():
            if self._done.get(key.namespace) == day or not _is_time(key.namespace, second):
                continue
            measured = _Measured(*self._known.of(key, self._monotonic()))
            if measured.histories:
                found.setdefault(key.namespace, {})[key] = measured
        return found

    def _record(
        self, due: Mapping[str, Mapping[WorkloadKey, _Measured]], sizes: _Sizes, day: int
    ) -> None:
        """Runs in a thread of its own.

        Raises:
            KubeError: pods cannot be listed.
        """
        with self._connect() as kube:
            for namespace, measured in sorted(due.items()):
                annotations = self._namespaces.annotations(namespace)
                if annotations is None:
                    continue
                pods = _opted_in(kube, namespace, annotations)
                for about, found in _chosen(pods, measured, sizes):
                    self._write(kube, about, found, day)
                self._done[namespace] = day

    def _write(self, kube: "BlockingClient", pod: Pod, found: Recommendation, day: int) -> None:
        about = ObjectReference("Pod", pod.name, pod.namespace, pod.uid)
        body = event_body(about, "Normal", RECOMMENDED, sizing_event(found), self._source)
        metadata = {"name": _event_name(found.key, day), "namespace": pod.namespace}
        try:
            kube.post(event_path(about), msgspec.json.encode({**body, "metadata": metadata}))
        except ConflictError:
            return  # another replica was first
        except KubeError as error:
            log.info("event dropped", error=str(error))


def _is_time(namespace: str, second: int) -> bool:
    """The slot of a namespace, which ends before the day does."""
    number = int.from_bytes(sha256(namespace.encode()).digest()[:8])
    start = number % (DAY_SECONDS - SLOT_SECONDS)
    return start <= second < start + SLOT_SECONDS


def _event_name(key: WorkloadKey, day: int) -> str:
    text = f"{key.namespace}/{key.kind}/{key.name}/{key.container}"
    date = datetime.fromtimestamp(day * DAY_SECONDS, UTC).strftime("%Y%m%d")
    return f"gpushare-sizing-{sha256(text.encode()).hexdigest()[:24]}.{date}"


def _opted_in(
    kube: "BlockingClient", namespace: str, annotations: Mapping[str, str]
) -> dict[tuple[str, str], Pod]:
    """The newest running pod of each workload whose owner wants events, by kind and name."""
    path = f"/api/v1/namespaces/{namespace}/pods"
    pages = kube.pages(path, {"fieldSelector": "status.phase=Running"}, cached=True)
    found: dict[tuple[str, str], Pod] = {}
    for raw in (raw for page in islice(pages, MOST_PAGES) for raw in pods_in(page)):
        pod = decode_pod(raw)
        options = sizing_options(pod.annotations, annotations)
        elsewhere = pod.namespace != namespace or pod.phase != "Running"
        if options.mode is not SizingMode.RECOMMEND or elsewhere:
            continue
        workload = workload_of(pod, controller_of(raw))
        known = found.get(workload)
        if known is None or pod.creation > known.creation:
            found[workload] = pod
    return found


def _chosen(
    pods: Mapping[tuple[str, str], Pod], measured: Mapping[WorkloadKey, _Measured], sizes: _Sizes
) -> Iterator[tuple[Pod, Recommendation]]:
    """Workloads that should have another size, most freed memory first."""
    found = [
        (pods[key.kind, key.name], best)
        for key, each in measured.items()
        if (key.kind, key.name) in pods and (best := _change(each, sizes)) is not None
    ]
    found.sort(key=lambda each: (-each[1].freed, each[1].key))
    yield from found[:MOST_EVENTS]


def _change(measured: _Measured, sizes: _Sizes) -> Recommendation | None:
    """The largest recommendation where it is another size than that of the workload."""
    found = [recommend(each, sizes.unit, sizes.rules) for each in measured.histories]
    if any(each.size is None for each in found):
        return None
    best = max(found, key=_size)
    if best.advice is SizingAdvice.SHRINK and not measured.whole:
        return None  # the peak may have been on a node that did not reply
    return best if best.advice in {SizingAdvice.RAISE, SizingAdvice.SHRINK} else None


def _size(found: Recommendation) -> tuple[int, int]:
    return (found.size.request, found.size.limit) if found.size else (0, 0)
