"""Reports pods that run without the limit of their share, by an event and a metric."""

import time
from collections.abc import Callable, Collection, Mapping
from typing import Final

import structlog

from gpucore.model import Gpu
from gpucore.node.allocation.device_ids import SHARES
from gpucore.node.isolation.limits import Unlimited, declared, sentence
from gpucore.node.isolation.overuse import AGAIN_SECONDS
from gpucore.units import GpuUuid, PodUid
from gpucore.wire.pod.spec import Pod
from gpudeviceplugin import telemetry
from gpudeviceplugin.cluster.events import WARNING, Events, Subject
from gpudeviceplugin.gpus.devices import Usage
from gpudeviceplugin.isolation.shares import has_share
from gpudeviceplugin.state import NodeState

log = structlog.get_logger()

OVERRIDDEN: Final = "GpuLimitOverridden"
ENVIRONMENT: Final = "environment"
PROCESS: Final = "process"


class LimitWatch:
    """Detects pods that run without the limits of their shares.

    Args:
        replaced: returns true where the container runtime replaces variables of a pod by those
            of the plugin.
    """

    def __init__(self, state: NodeState, events: Events, replaced: Callable[[], bool]) -> None:
        self._state = state
        self._events = events
        self._replaced = replaced
        self._unlimited: dict[GpuUuid, Unlimited] = {}
        self._reported: dict[tuple[PodUid, str], float] = {}
        self._found: dict[tuple[PodUid, str], str] = {}

    async def publish(self) -> None:
        """Update the metrics with new findings, and record events on the pods."""
        if not self._replaced():
            self._declared()
        telemetry.LIMIT_OVERRIDDEN.clear()
        found, self._found = self._found, {}
        self._reported = {key: at for key, at in self._reported.items() if key in found}
        for (uid, how), message in found.items():
            pod = self._state.pods.get(uid)
            if pod is not None:
                telemetry.LIMIT_OVERRIDDEN.labels(pod.namespace, pod.name, how).set(1)
                await self._tell(pod, how, message)

    def _declared(self) -> None:
        for pod in self._state.pods.values():
            variables = {} if pod.finished else declared(pod, self._state.policy.names)
            if variables:
                message = f"{sentence(variables)}, which replaces the value of the device plugin"
                self._found[pod.uid, ENVIRONMENT] = message

    def measured(
        self, gpu: Gpu, usage: Usage, owners: Mapping[int, PodUid], exempt: Collection[PodUid]
    ) -> None:
        """Note the pods with a share of ``gpu`` whose processes are no clients of its daemon."""
        if not gpu.isolation.uses_mps:
            self._unlimited.pop(gpu.uuid, None)
            return
        clients = {process.pid: process.mps for process in usage.processes}
        for uid in self._unlimited.setdefault(gpu.uuid, Unlimited()).pods(clients, owners):
            pod = self._state.pods.get(uid)
            if pod is not None and uid not in exempt and has_share(self._state, pod, SHARES):
                self._found[uid, PROCESS] = (
                    f"a process uses GPU {gpu.index} without the MPS daemon, so no "
                    "limit applies to it"
                )

    async def _tell(self, pod: Pod, how: str, message: str) -> None:
        now = time.monotonic()
        if now - self._reported.get((pod.uid, how), -AGAIN_SECONDS) < AGAIN_SECONDS:
            return
        self._reported[pod.uid, how] = now
        log.warning("limit overridden", pod=f"{pod.namespace}/{pod.name}", why=message)
        subject = Subject("Pod", pod.name, pod.namespace, pod.uid)
        await self._events.event(subject, OVERRIDDEN, message, kind=WARNING)
