"""Changes of the maximum of a running pod, which its annotation asks for.

The share, which kubelet has accounted for, never changes. A maximum below the memory in use is not
set: the earlier one stays in force until the pod has freed the difference.
"""

import time
from typing import Final, NamedTuple

import structlog

from gpucore.model import Gpu
from gpucore.node.isolation.driver_limits import MemoryLimit, attainable, is_earlier
from gpucore.node.isolation.overuse import AGAIN_SECONDS
from gpucore.units import GIB_BYTES, PodUid
from gpucore.wire.pod.spec import Pod
from gpudeviceplugin.cluster.events import NORMAL, WARNING, Events, Subject
from gpudeviceplugin.gpus.driver import PatientDriver
from gpudeviceplugin.isolation.shares import MIB
from gpukube.events import EventType

log = structlog.get_logger()

CHANGED: Final = "GpuMemoryLimitChanged"
NOT_LOWERED: Final = "GpuMemoryLimitNotLowered"


class LimitChange(NamedTuple):
    """One look at the limit of a pod on a GPU.

    Attributes:
        wanted: by the share and the annotation.
        before: in force before the look.
        target: to be set: ``wanted``, or ``before`` while the pod uses more than is wanted.
        used: bytes in use where they were read, else 0.
    """

    wanted: MemoryLimit
    before: MemoryLimit
    target: MemoryLimit
    used: int = 0


class LimitChanges:
    """Decides on and reports changes of limits of running pods."""

    def __init__(self, driver: PatientDriver, events: Events) -> None:
        self._driver = driver
        self._events = events
        self._reported: dict[tuple[str, PodUid], float] = {}

    async def between(
        self, gpu: Gpu, cgroup: str, before: MemoryLimit, wanted: MemoryLimit
    ) -> LimitChange:
        """The change from the limit in force to the wanted one, as far as it is possible now.

        Raises:
            DriverError: the driver does not report the memory in use.
        """
        if wanted.hard >= before.hard or not _is_earlier(gpu, before, wanted):
            return LimitChange(wanted, before, wanted)
        used = await self._driver.memory_used(gpu.uuid, cgroup)
        return LimitChange(wanted, before, attainable(wanted, before, used=used), used)

    async def report(self, gpu: Gpu, pod: Pod, change: LimitChange) -> None:
        """Record an event where the maximum has changed, or could not be lowered."""
        if not _is_earlier(gpu, change.before, change.wanted):
            return
        if change.target == change.wanted:
            self._reported.pop((gpu.uuid, pod.uid), None)
            message = (
                f"the driver's memory limit of GPU {gpu.index} is {_gib(change.wanted.hard)} now,"
                f" before {_gib(change.before.hard)}; {_gib(change.wanted.soft)} are guaranteed"
            )
            await self._tell(pod, CHANGED, message, NORMAL)
        elif self._is_due(gpu, pod):
            message = (
                f"the driver's memory limit of GPU {gpu.index} stays {_gib(change.before.hard)}:"
                f" the pod uses {_gib(change.used)}, more than the {_gib(change.wanted.hard)} of"
                " its annotation; the limit is lowered once it uses less"
            )
            await self._tell(pod, NOT_LOWERED, message, WARNING)

    async def _tell(self, pod: Pod, reason: str, message: str, kind: EventType) -> None:
        log.info("memory limit", pod=f"{pod.namespace}/{pod.name}", why=message)
        subject = Subject("Pod", pod.name, pod.namespace, pod.uid)
        await self._events.event(subject, reason, message, kind=kind)

    def _is_due(self, gpu: Gpu, pod: Pod) -> bool:
        now, key = time.monotonic(), (gpu.uuid, pod.uid)
        self._reported = {k: at for k, at in self._reported.items() if now - at < AGAIN_SECONDS}
        return self._reported.setdefault(key, now) == now


def _is_earlier(gpu: Gpu, before: MemoryLimit, wanted: MemoryLimit) -> bool:
    return is_earlier(before, wanted, gpu_bytes=gpu.memory_mib * MIB)


def _gib(size_bytes: int) -> str:
    return f"{size_bytes / GIB_BYTES:.2f}".rstrip("0").rstrip(".") + " GiB"
