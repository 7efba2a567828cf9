"""Records the GPU memory that workloads have in use, as histograms that survive a restart.

The figures are those of the last measurement, so recording reads neither the driver nor the API
server. A pod whose memory in use is not known for certain is left out of the round.
"""

import asyncio
import time
from collections.abc import Callable
from typing import Final, NamedTuple

from gpucore.model import Gpu
from gpucore.sizing.histories import Histories
from gpucore.sizing.history_documents import encode_histories
from gpucore.sizing.sizing_options import original_units
from gpucore.sizing.usage_history import WorkloadKey
from gpucore.sizing.workloads import workload_of
from gpucore.units import PodUid
from gpucore.wire.pods import Pod, created
from gpudeviceplugin.isolation.shares import MIB, allowed_bytes, exclusive_pods, granted_bytes
from gpudeviceplugin.node.current_use import CurrentUse, gpu_containers
from gpudeviceplugin.node.history_file import HistoryFile
from gpudeviceplugin.node.pod_starts import PodControllers, PodStarts
from gpudeviceplugin.state import NodeState

SAVE_SECONDS: Final = 300.0
MOST_BYTES: Final = 1 << 50
"""An original size above this is none: readers refuse a document with larger numbers."""
ALL_CONTAINERS: Final = ""
"""Container of a history where several containers of a pod hold GPUs: the sum of all of them."""


class _Share(NamedTuple):
    """What a pod holds, uses and may use, over all its GPUs; ``used`` is ``None`` if unknown."""

    used: int | None = 0
    requested: int = 0
    limit: int = 0


class UsageRecorder:
    """Samples the memory in use of every pod with GPUs.

    Args:
        use: the last measurement.
        controllers: of the pods.
        file: where the histories are kept; ``None`` to keep them in memory only.
        interval_seconds: seconds between two samples.
        clock: Unix seconds.
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
    ) -> None:
        self._state, self._use, self._controllers = state, use, controllers
        self._node, self._file = node, file
        self._interval_seconds, self._clock = interval_seconds, clock
        self._starts = PodStarts()
        self._saved = clock()
        self.histories = Histories()

    async def run(self) -> None:
        """Sample periodically until cancelled, and save at the end."""
        if self._file is not None:
            self.histories.put(await asyncio.to_thread(self._file.load))
        try:
            while True:
                await asyncio.sleep(self._interval_seconds)
                self.sample()
                await self._save_if_due()
        finally:
            self.save()

    async def _save_if_due(self) -> None:
        if self._file is not None and self._clock() - self._saved >= SAVE_SECONDS:
            self._saved = self._clock()
            copies = self.histories.copies()
            await asyncio.to_thread(self._file.save, copies)

    def save(self) -> None:
        """Write the file now, where there is one."""
        if self._file is not None:
            self._file.save(self.histories.all())

    def document(self) -> bytes:
        """The document of ``/usage-history``."""
        return encode_histories(self._node, self.histories.all())

    def sample(self) -> None:
        """Record one sample of each pod whose memory in use is known."""
        now = self._clock()
        pods = self._state.pods
        self._controllers.keep(set(pods))
        shares = self._shares()
        running = [pods[uid] for uid in shares if self._is_known(pods[uid])]
        new = {pod.uid for pod in self._starts.look(running, now)}
        for pod in running:
            self._record(pod, shares[pod.uid], now, new=pod.uid in new)

    def _is_known(self, pod: Pod) -> bool:
        """The pod runs, and its workload is known."""
        controlled = not pod.owner or self._controllers.of(pod) is not None
        return pod.phase == "Running" and controlled

    def _record(self, pod: Pod, share: _Share, now: float, *, new: bool) -> None:
        history = self.histories.current(self._key(pod), now)
        if new and created(pod) >= history.last_seen:
            history.pods += 1
            history.starts += self._starts.knows(pod)
        if share.used is not None:
            requested, limit = self._of_owner(pod, share)
            history.record(
                now,
                share.used,
                requested_bytes=requested,
                limit_bytes=limit,
                starting=self._starts.starting(pod, now),
            )

    def _of_owner(self, pod: Pod, share: _Share) -> tuple[int, int]:
        """Bytes that the owner requested and allowed, also where the webhook resized the pod.

        Otherwise every new pod would be compared with the size of the last one.
        """
        original, unit = original_units(pod.annotations), self._state.inventory.unit
        if original is None or unit is None:
            return share.requested, share.limit
        request, limit = (units * unit.mib * MIB for units in original)
        if max(request, limit) > MOST_BYTES:
            return share.requested, share.limit
        return request, max(limit, request)

    def _key(self, pod: Pod) -> WorkloadKey:
        kind, name = workload_of(pod, self._controllers.of(pod))
        containers = gpu_containers(self._state, pod)
        container = containers[0] if len(containers) == 1 else ALL_CONTAINERS
        return WorkloadKey(pod.namespace, kind, name, container)

    def _shares(self) -> dict[PodUid, _Share]:
        found: dict[PodUid, _Share] = {}
        for gpu in self._state.inventory.gpus:
            for uid, (requested, limit) in self._granted(gpu).items():
                known, used = found.get(uid, _Share()), self._used(gpu, uid)
                unknown = known.used is None or used is None
                found[uid] = _Share(
                    None if unknown else (known.used or 0) + (used or 0),
                    known.requested + requested,
                    known.limit + limit,
                )
        return found

    def _used(self, gpu: Gpu, uid: PodUid) -> int | None:
        measured = self._use.on(gpu)
        return None if measured is None else measured.used_by(uid)

    def _granted(self, gpu: Gpu) -> dict[PodUid, tuple[int, int]]:
        """Bytes requested and allowed by pod; an exclusive GPU counts with all of its memory."""
        unit = self._state.inventory.unit
        whole = gpu.units * (unit.mib * MIB if unit else 0)
        granted, allowed = granted_bytes(self._state, gpu), allowed_bytes(self._state, gpu)
        shares = {uid: (size, allowed.get(uid, size)) for uid, size in granted.items()}
        return {**shares, **dict.fromkeys(exclusive_pods(self._state, gpu), (whole, whole))}
