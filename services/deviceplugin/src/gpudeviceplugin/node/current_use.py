"""GPU memory in use as of the last measurement, for ``/usage`` and for the histories."""

import time
from collections.abc import Callable, Mapping

import msgspec

from gpucore.model import Gpu
from gpucore.node.isolation.attribution import UNKNOWN, Attribution, EngineUse
from gpucore.sizing.usage_documents import (
    MOST_CONTAINERS,
    GpuMemoryUse,
    PodMemoryUse,
    node_usage,
)
from gpucore.units import PodUid
from gpucore.wire.pod.spec import Pod
from gpudeviceplugin.gpus.devices import Usage
from gpudeviceplugin.isolation.shares import holders
from gpudeviceplugin.state import NodeState

_Since = dict[tuple[str, PodUid], float]
"""Unix seconds by UUID of the GPU and pod."""


class Measured(msgspec.Struct, frozen=True):
    """One GPU as measured.

    Attributes:
        pods: bytes by pod.
        shown: the same, and those of a pod that has the GPU to itself for now.
        unattributed_bytes: in use by processes of no known pod, or of one that the plugin has not
            seen yet.
        work: whose work ran on its engines since the last measurement.
        attributes: figures of this GPU were attributed to a pod before, so that this is possible.
    """

    gpu: Gpu
    used_bytes: int
    pods: Mapping[PodUid, int]
    shown: Mapping[PodUid, int]
    unattributed_bytes: int
    attributes: bool
    work: EngineUse = UNKNOWN

    def used_by(self, uid: PodUid) -> int | None:
        """Bytes of a pod; ``None`` where memory in use might be its own and nothing shows it.

        Without the host's processes nothing is ever attributed: then a pod that uses memory at
        times would have zeros and no other figures.
        """
        if uid in self.pods:
            return self.pods[uid]
        return 0 if self.attributes and not self.unattributed_bytes else None

    def shown_of(self, uid: PodUid) -> int | None:
        """As :meth:`used_by`, for people: also of a pod that has the GPU to itself for now.

        Where no process uses the GPU at all, nobody uses any of it.
        """
        if uid in self.shown:
            return self.shown[uid]
        return 0 if not self.pods and not self.unattributed_bytes else self.used_by(uid)

    def has_no_work(self, uid: PodUid) -> bool:
        """No work of a pod ran on the GPU for certain: without memory there is no CUDA context."""
        return self.work.of(uid) == 0 if self.shown_of(uid) else self.shown_of(uid) == 0


class CurrentUse:
    """The last measurement of each GPU that answered.

    Args:
        clock: Unix seconds.
    """

    def __init__(self, state: NodeState, node: str, clock: Callable[[], float] = time.time) -> None:
        self._state, self._node, self._clock = state, node, clock
        self._gpus: dict[str, Measured] = {}
        self._attributing: set[str] = set()
        self._idle: _Since = {}
        self._no_work: _Since = {}
        self._at = 0.0

    def begin(self) -> None:
        """A round begins: GPUs that left the node have no figures any more."""
        present = {gpu.uuid for gpu in self._state.inventory.gpus}
        self._gpus = {uuid: found for uuid, found in self._gpus.items() if uuid in present}
        self._attributing &= present
        for known in (self._idle, self._no_work):
            for key in [*known]:
                if key[0] not in present or key[1] not in self._state.pods:
                    del known[key]

    def measured(
        self,
        gpu: Gpu,
        usage: Usage,
        found: Attribution,
        *,
        shown: Attribution | None = None,
        work: EngineUse = UNKNOWN,
    ) -> None:
        """Take the figures of a GPU.

        Args:
            found: those that are certain.
            shown: those for people, where they differ.
            work: whose work ran on its engines since the last measurement.
        """
        known = self._of_known_pods(found)
        unknown = sum(found.pods.values()) - sum(known.values())
        self._at = self._clock()
        if known:
            self._attributing.add(gpu.uuid)
        self._gpus[gpu.uuid] = Measured(
            gpu,
            usage.used_bytes,
            known,
            self._of_known_pods(shown or found),
            found.unattributed + unknown,
            gpu.uuid in self._attributing,
            work,
        )
        self._note_idle(self._gpus[gpu.uuid])

    def _note_idle(self, found: Measured) -> None:
        """A pod is idle from the first measurement on that found no memory, or no work, of it."""
        for uid in {*found.shown, *holders(self._state, found.gpu)}:
            key = (found.gpu.uuid, uid)
            for known, idle in (
                (self._idle, found.shown_of(uid) == 0),
                (self._no_work, found.has_no_work(uid)),
            ):
                if idle:
                    known.setdefault(key, self._at)
                else:
                    known.pop(key, None)

    def _of_known_pods(self, found: Attribution) -> dict[PodUid, int]:
        return {uid: size for uid, size in found.pods.items() if uid in self._state.pods}

    def unanswered(self, gpu: Gpu) -> None:
        """The GPU has no figures: old ones would pass for current ones."""
        self._gpus.pop(gpu.uuid, None)
        for known in (self._idle, self._no_work):
            for key in [key for key in known if key[0] == gpu.uuid]:
                del known[key]

    def on(self, gpu: Gpu) -> Measured | None:
        """The figures of a GPU, if it answered."""
        return self._gpus.get(gpu.uuid)

    def document(self) -> bytes:
        """The document of ``/usage``."""
        gpus = sorted(self._gpus.values(), key=lambda each: each.gpu.index)
        return msgspec.json.encode(node_usage(self._node, self._at, map(self._gpu, gpus)))

    def _gpu(self, found: Measured) -> GpuMemoryUse:
        rows = (self._pod(uid, found) for uid in {*found.shown, *holders(self._state, found.gpu)})
        alone = sum(found.shown.values()) - sum(found.pods.values())
        return GpuMemoryUse(
            found.gpu.index,
            found.gpu.uuid,
            max(found.used_bytes, 0),
            max(found.unattributed_bytes - alone, 0),
            tuple(sorted(row for row in rows if row is not None)),
        )

    def _pod(self, uid: PodUid, found: Measured) -> PodMemoryUse | None:
        pod, used = self._state.pods.get(uid), found.shown_of(uid)
        if pod is None or used is None:
            return None
        key = (found.gpu.uuid, uid)
        return PodMemoryUse(
            pod.namespace,
            pod.name,
            gpu_containers(self._state, pod)[:MOST_CONTAINERS],
            max(used, 0),
            idle_since=self._idle.get(key, 0.0),
            no_work_since=self._no_work.get(key, 0.0),
        )


def gpu_containers(state: NodeState, pod: Pod) -> tuple[str, ...]:
    """Names of the containers of a pod that hold GPUs, without init containers that end.

    A claim is the pod's as a whole: then it is all containers.
    """
    running = [each.name for each in (*pod.sidecars, *pod.containers)]
    held = state.containers_with_devices(pod)
    return tuple(name for name in running if not held or name in held)
