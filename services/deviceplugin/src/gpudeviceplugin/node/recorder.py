"""Records the GPU memory that workloads have in use, as histograms that survive a restart.

The figures are those of the last measurement, so recording reads neither the driver nor the API
server. A pod whose memory in use is not known for certain is left out of the round.
"""

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

from gpucore.model import Gpu
from gpucore.sizing.histories import Histories
from gpucore.sizing.history_documents import encode_histories
from gpucore.sizing.sizing_options import original_units
from gpucore.sizing.usage_history import ALL_CONTAINERS, UsageHistory, WorkloadKey
from gpucore.units import PodUid
from gpucore.wire.names import CLAIM_TEMPLATE
from gpucore.wire.pod.container_statuses import container_restarts, memory_failures
from gpucore.wire.pod.controllers import workload_of
from gpucore.wire.pod.spec import Pod, created
from gpudeviceplugin.isolation.shares import MIB, allocated_bytes, allowed_bytes, exclusive_pods
from gpudeviceplugin.node.current_use import CurrentUse, gpu_containers
from gpudeviceplugin.node.history_file import HistoryFile
from gpudeviceplugin.node.pod_starts import PodControllers, PodStarts
from gpudeviceplugin.node.recorded_pods import LastSample, RecordedPods
from gpudeviceplugin.state import NodeState

SAVE_SECONDS: Final = 300.0
MOST_BYTES: Final = 1 << 50
"""An original size above this is none, and more in use counts as this: readers refuse a document
with larger numbers."""


class _Share(NamedTuple):
    """What a pod holds, uses and may use of one GPU; ``None`` is unknown."""

    used: int | None
    requested: int
    limit: int
    sm_percent: int | None


class UsageRecorder:
    """Samples the memory in use of every pod with GPUs.

    Args:
        file: where the histories are kept; ``None`` to keep them in memory only.
        interval_seconds: seconds between two samples.
        clock: Unix seconds.
        monotonic: seconds of a clock that no one sets; when to save is decided by it.
    """

    def __init__(
        self,
        state: NodeState,
        use: CurrentUse,
        controllers: PodControllers,
        *,
        node: str,
        file: HistoryFile | None,
        interval_seconds: float,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._state, self._use, self._controllers = state, use, controllers
        self._node, self._file = node, file
        self._interval_seconds, self._clock = interval_seconds, clock
        self._starts, self._pods = PodStarts(), RecordedPods()
        self._monotonic, self._saved = monotonic, monotonic()
        self._loaded, self._began = file is None, clock()
        self.histories = Histories()

    async def run(self) -> None:
        """Sample periodically until cancelled, and save at the end."""
        if self._file is not None:
            self.histories.put(await asyncio.to_thread(self._file.load))
            self._loaded = True
        try:
            while True:
                await asyncio.sleep(self._interval_seconds)
                self.sample()
                await self._save_if_due()
        finally:
            self.save()

    async def _save_if_due(self) -> None:
        if self._file is not None and self._monotonic() - self._saved >= SAVE_SECONDS:
            self._saved = self._monotonic()
            copies = self.histories.copies()
            await asyncio.to_thread(self._file.save, copies)

    def save(self) -> None:
        """Write the file now, where there is one."""
        if self._file is not None:
            self._file.save(self.histories.all())

    def document(self) -> bytes:
        """The document of ``/usage-history``; empty until the file is loaded."""
        return encode_histories(self._node, self.histories.all()) if self._loaded else b""

    def seen(self, pod: Pod, line: bytes) -> None:
        """An event of a pod: take the restarts and out-of-memory failures that it shows, each once.

        The limit that was not enough is that of the last sample, so a pod without one is left out.
        """
        now, containers = self._clock(), gpu_containers(self._state, pod)
        for restart in container_restarts(line):
            if restart.container in containers and restart.at <= now:
                self._starts.restarted(pod, restart.at)
        for failure in memory_failures(line):
            history = self.histories.get(self._key(pod))
            if history is None or failure.at <= history.ran_out.at:
                continue
            if history.key.container in {failure.container, ALL_CONTAINERS}:
                at, limit = min(failure.at, self._clock()), self._allowed(pod, history)
                for each in (history, self._pods.of(pod, history.key)):
                    each.fail(at, limit)

    def _allowed(self, pod: Pod, history: UsageHistory) -> int:
        """Bytes that the pod may use; where it holds nothing any more, as of the last sample."""
        held = sum(each.limit for each in self._shares().get(pod.uid, ()))
        return held or max(history.limit_bytes, history.requested_bytes)

    def sample(self) -> None:
        """Record one sample of each pod whose memory in use is known."""
        now = self._clock()
        pods = self._state.pods
        self._controllers.keep(set(pods))
        shares = self._shares()
        running = [pods[uid] for uid in shares if self._is_known(pods[uid])]
        for pod in self._starts.look(running, pods.keys(), now):
            self._count(pod, now)
        restarted = self._starts.restarts_measured(now)
        for pod in running:
            if pod.uid in restarted:
                self._count_start(pod, now)
        self._pods.keep(pods)
        self._pods.publish(
            [each for pod in running for each in self._record(pod, shares[pod.uid], now)]
        )

    def _is_known(self, pod: Pod) -> bool:
        """The pod runs, and its workload is known."""
        controlled = not pod.owner or self._controllers.of(pod) is not None
        return pod.phase == "Running" and controlled

    def _count(self, pod: Pod, now: float) -> None:
        """Count a new pod, before its round is recorded; an earlier plugin counted older pods.

        A pod that is younger than this plugin counts, whatever others of its workload were measured
        meanwhile.
        """
        key = self._key(pod)
        history, started = self.histories.current(key, now), self._starts.knows(pod)
        self._pods.of(pod, key).starts += started
        if created(pod) >= min(history.last_seen, self._began):
            history.pods += 1
            history.starts += started

    def _count_start(self, pod: Pod, now: float) -> None:
        """Count a restart of a container."""
        key = self._key(pod)
        for each in (self.histories.current(key, now), self._pods.of(pod, key)):
            each.starts += 1

    def _record(self, pod: Pod, shares: Sequence[_Share], now: float) -> Iterator[LastSample]:
        """Add a sample to the histories of workload and pod; yields it, if there is one."""
        key, used, sm_percent = self._key(pod), _used(shares), _sm_percent(shares)
        histories = (self.histories.current(key, now), self._pods.of(pod, key))
        if used is None:
            return
        limit = sum(each.limit for each in shares)
        requested, of_owner = self._of_owner(pod, sum(each.requested for each in shares), limit)
        for history in histories:
            history.record(
                now,
                used,
                requested_bytes=requested,
                limit_bytes=of_owner,
                allowed_bytes=limit,
                gpus=len(shares),
                claims=self._has_claims(pod),
                starting=self._starts.starting(pod, now),
                sm_percent=sm_percent,
            )
        yield LastSample(pod.uid, used, sm_percent)

    def _has_claims(self, pod: Pod) -> bool:
        """Its owner wrote claims; the webhook made those of a converted pod."""
        return self._state.claims.uses(pod) and CLAIM_TEMPLATE not in pod.annotations

    def _of_owner(self, pod: Pod, requested: int, limit: int) -> tuple[int, int]:
        """Bytes that the owner requested and allowed, also where the webhook resized the pod.

        Otherwise every new pod would be compared with the size of the last one.
        """
        original, unit = original_units(pod.annotations), self._state.inventory.unit
        if original is None or unit is None:
            return requested, limit
        request, most = (units * unit.mib * MIB for units in original)
        return (
            (requested, limit) if max(request, most) > MOST_BYTES else (request, max(most, request))
        )

    def _key(self, pod: Pod) -> WorkloadKey:
        """A sidecar is not named: a patch would add a container of its name to the others."""
        kind, name = workload_of(pod, self._controllers.of(pod))
        containers = gpu_containers(self._state, pod)
        sidecar = any(each.name in containers for each in pod.sidecars)
        container = containers[0] if len(containers) == 1 and not sidecar else ALL_CONTAINERS
        return WorkloadKey(pod.namespace, kind, name, container)

    def _shares(self) -> dict[PodUid, list[_Share]]:
        """By pod, one share for each of its GPUs."""
        found: dict[PodUid, list[_Share]] = {}
        for gpu in self._state.inventory.gpus:
            for uid, (requested, limit) in self._allocated(gpu).items():
                share = _Share(self._used(gpu, uid), requested, limit, self._sm_percent(gpu, uid))
                found.setdefault(uid, []).append(share)
        return found

    def _used(self, gpu: Gpu, uid: PodUid) -> int | None:
        measured = self._use.on(gpu)
        return None if measured is None else measured.used_by(uid)

    def _sm_percent(self, gpu: Gpu, uid: PodUid) -> int | None:
        measured = self._use.on(gpu)
        return None if measured is None else measured.work.of(uid)

    def _allocated(self, gpu: Gpu) -> dict[PodUid, tuple[int, int]]:
        """Bytes requested and allowed by pod; an exclusive GPU counts with all of its memory."""
        unit = self._state.inventory.unit
        whole = gpu.units * (unit.mib * MIB if unit else 0)
        allocated, allowed = allocated_bytes(self._state, gpu), allowed_bytes(self._state, gpu)
        shares = {uid: (size, allowed.get(uid, size)) for uid, size in allocated.items()}
        return {**shares, **dict.fromkeys(exclusive_pods(self._state, gpu), (whole, whole))}


def _sm_percent(shares: Sequence[_Share]) -> int | None:
    """SM utilization of the GPU that the pod uses most; ``None`` where one is unknown."""
    known = [each.sm_percent for each in shares if each.sm_percent is not None]
    return max(known) if len(known) == len(shares) else None


def _used(shares: Sequence[_Share]) -> int | None:
    """Bytes that a pod would use if all its GPUs were as full as the fullest; ``None`` if unknown.

    The size of a pod is spread evenly over its GPUs, so the fullest one decides.
    """
    if any(each.used is None for each in shares):
        return None
    limit = sum(each.limit for each in shares)
    if len(shares) == 1 or not limit:
        return sum(each.used or 0 for each in shares)
    spread = max((each.used or 0) * limit // each.limit for each in shares if each.limit)
    return min(spread, MOST_BYTES)
