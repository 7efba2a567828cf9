"""Measures GPU memory in use by pod and compares it with the pod's allocation.

Processes are mapped to pods by the control groups of the host, which needs the host's PID
namespace: drivers of today list to a caller only the processes of its own. Without it usage is
assigned to a pod only where that pod has the GPU to itself. Nothing is enforced here: a pod that
uses more than its share gets an event, and the metrics show it.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Final, NamedTuple

import structlog

from gpucore.model import Gpu
from gpucore.node.allocation.device_ids import Resource
from gpucore.node.isolation.attribution import (
    Attribution,
    EngineUse,
    attribute,
    corrected,
    engine_use,
    owners,
    with_sole_pod,
)
from gpucore.node.isolation.overuse import MemoryOveruse, Reminders, over_use
from gpucore.units import PodUid
from gpucore.wire.pod.spec import Pod
from gpudeviceplugin import telemetry
from gpudeviceplugin.cluster.events import WARNING, Events, Subject
from gpudeviceplugin.gpus.devices import DriverError, Usage
from gpudeviceplugin.gpus.driver import PatientDriver
from gpudeviceplugin.isolation.limits import LimitWatch
from gpudeviceplugin.isolation.shares import (
    MIB,
    allocated_gpus,
    allocated_units,
    allowed_bytes,
    exclusive_pods,
    has_share,
    holders,
)
from gpudeviceplugin.node.current_use import CurrentUse
from gpudeviceplugin.node.pod_figures import PodFigures
from gpudeviceplugin.settings import DevicePluginSettings
from gpudeviceplugin.state import NodeState

log = structlog.get_logger()

ExactUse = Callable[[Gpu], Awaitable[Mapping[PodUid, int]]]
OVERUSED: Final = "GpuMemoryOverused"


class UsageSettings(NamedTuple):
    """Settings of the usage sampling.

    Attributes:
        proc: directory of the host's ``/proc``.
        interval_seconds: seconds between two samples.
        slack_bytes: bytes beyond its share that a pod may use before it gets an event.
    """

    proc: Path
    interval_seconds: float
    slack_bytes: int


def usage_settings(settings: DevicePluginSettings) -> UsageSettings:
    """The settings of the usage sampling."""
    return UsageSettings(
        settings.host_proc,
        interval_seconds=settings.usage_seconds,
        slack_bytes=settings.overuse_slack_mib * MIB,
    )


class UsageMeter:
    """Sets the metrics of memory allocated and used, and records events on pods that use too much.

    Args:
        exact: the driver's own figures of pods on a GPU; they replace the sums of processes.
        use: takes the figures of each round.
    """

    def __init__(
        self,
        state: NodeState,
        driver: PatientDriver,
        events: Events,
        settings: UsageSettings,
        limits: LimitWatch,
        *,
        exact: ExactUse | None = None,
        use: CurrentUse | None = None,
    ) -> None:
        self._state = state
        self._driver = driver
        self._events = events
        self._settings = settings
        self._limits = limits
        self._exact = exact
        self._use = use or CurrentUse(state, "")
        self._reminders = Reminders()
        self._figures = PodFigures()

    async def run(self) -> None:
        """Measure periodically, until cancelled."""
        while True:
            seen = self._state.inventory_changed.count
            await self.measure()
            await self._state.inventory_changed.beyond_or_after(
                seen, self._settings.interval_seconds
            )

    async def measure(self) -> None:
        """One round over all GPUs; a GPU that does not answer keeps its last figures."""
        self._figures.begin()
        self._use.begin()
        gpus = self._state.inventory.gpus
        usages = await self._driver.usages([gpu.uuid for gpu in gpus])
        for gpu in gpus:
            self._allocated(gpu)
            usage = usages[gpu.uuid]
            if isinstance(usage, DriverError):
                log.debug("no usage", uuid=gpu.uuid, why=str(usage))
                self._use.unanswered(gpu)
                self._figures.keep(gpu, self._names())
                continue
            cgroups = await self._cgroups(usage)
            sizes = {each.pid: each.used_bytes for each in usage.processes if each.used_bytes}
            found = attribute(sizes, cgroups, unlisted=usage.unlisted_bytes)
            work = engine_use(
                usage.sm_percents, cgroups, holders(self._state, gpu), found.pods.keys()
            )
            if self._exact is not None:
                found = corrected(found, await self._exact(gpu))
            self._show(gpu, usage, found, work, processes_seen=any(cgroups.values()))
            self._limits.measured(gpu, usage, owners(cgroups), exclusive_pods(self._state, gpu))
            await self._judge(gpu, found)
        here = set(map(_labels, self._state.inventory.gpus))
        telemetry.forget_gpus(set(map(_labels, gpus)) - here)  # some may have left meanwhile
        self._figures.publish()
        await self._limits.publish()

    def _names(self) -> set[tuple[str, str]]:
        return {(pod.namespace, pod.name) for pod in self._state.pods.values()}

    def _show(
        self,
        gpu: Gpu,
        usage: Usage,
        found: Attribution,
        work: EngineUse,
        *,
        processes_seen: bool,
    ) -> None:
        """Give out the figures of a GPU.

        Histories take those of a pod that only happens to have the GPU to itself for none: they
        would have no figures of the time when it has not.
        """
        alone = with_sole_pod(found, holders(self._state, gpu), processes_seen=processes_seen)
        self._used(gpu, usage, alone)
        self._worked(gpu, work)
        certain = alone if exclusive_pods(self._state, gpu) else found
        self._use.measured(gpu, usage, certain, shown=alone, work=work)
        self._unused(gpu, alone)

    def _allocated(self, gpu: Gpu) -> None:
        held = allocated_units(self._state, gpu)
        telemetry.GPU_ALLOCATED.labels(str(gpu.index), gpu.uuid).set(sum(held.values()))
        for pod, units in held.items():
            self._figures.add(telemetry.POD_ALLOCATED, gpu, pod, units)
        for pod, part in allocated_gpus(self._state, gpu, held).items():
            self._figures.add(telemetry.POD_ALLOCATED_GPUS, gpu, pod, part)

    async def _cgroups(self, usage: Usage) -> dict[int, str]:
        """Control groups by process, read in a thread where there is one to read."""
        pids = {each.pid for each in usage.processes} | (usage.sm_percents or {}).keys()
        if not pids:
            return {}
        return await asyncio.to_thread(lambda: {pid: self._cgroup(pid) for pid in pids})

    def _cgroup(self, pid: int) -> str:
        try:
            path = self._settings.proc / str(pid) / "cgroup"
            return path.read_text(errors="replace")  # its owner may name cgroups in any bytes
        except OSError:  # it has ended, or this container does not see the host's processes
            return ""

    def _used(self, gpu: Gpu, usage: Usage, found: Attribution) -> None:
        unattributed = found.unattributed
        telemetry.GPU_USED.labels(str(gpu.index), gpu.uuid).set(usage.used_bytes)
        for uid, size in found.pods.items():
            pod = self._state.pods.get(uid)
            if pod is None:
                unattributed += size
            else:
                self._figures.add(telemetry.POD_USED, gpu, (pod.namespace, pod.name), size)
        telemetry.UNATTRIBUTED.labels(str(gpu.index), gpu.uuid).set(unattributed)

    def _unused(self, gpu: Gpu, found: Attribution) -> None:
        """Zero for the pods that use no memory for certain: a series of their own, not none."""
        measured = self._use.on(gpu)
        for uid in holders(self._state, gpu) - found.pods.keys():
            pod = self._state.pods.get(uid)
            if pod is not None and measured is not None and measured.shown_of(uid) == 0:
                self._figures.add(telemetry.POD_USED, gpu, (pod.namespace, pod.name), 0)

    def _worked(self, gpu: Gpu, work: EngineUse) -> None:
        for uid in holders(self._state, gpu):
            pod, percent = self._state.pods.get(uid), work.of(uid)
            if pod is not None and percent is not None:
                named = (pod.namespace, pod.name)
                self._figures.add(telemetry.POD_SM_PERCENT, gpu, named, percent)

    async def _judge(self, gpu: Gpu, found: Attribution) -> None:
        """Record events on the pods that use more of the GPU than their shares."""
        over = over_use(
            gpu.index,
            used=found.pods,
            allocated=allowed_bytes(self._state, gpu),
            exempt=self._exempt(gpu, found),
            slack=self._settings.slack_bytes,
        )
        for each in over:
            pod = self._state.pods[each.pod]
            named = (pod.namespace, pod.name)
            self._figures.add(telemetry.POD_OVER, gpu, named, each.used - each.allocated)
        for each in self._reminders.due(gpu.index, over, time.monotonic()):
            await self._tell(self._state.pods[each.pod], each)

    def _exempt(self, gpu: Gpu, found: Attribution) -> set[PodUid]:
        """Pods without a share: those with the exclusive GPU, and those that request no memory.

        Among the latter is this plugin's own pod, in which the MPS servers run.
        """
        exempt = exclusive_pods(self._state, gpu)
        for uid in found.pods:
            pod = self._state.pods.get(uid)
            if pod is None or not has_share(self._state, pod, (Resource.MEM,)):
                exempt.add(uid)
        return exempt

    async def _tell(self, pod: Pod, over: MemoryOveruse) -> None:
        used, share = over.used // MIB, over.allocated // MIB
        message = f"uses {used} MiB of GPU {over.gpu}, but its share is {share}"
        log.warning("over-use", pod=f"{pod.namespace}/{pod.name}", why=message)
        telemetry.OVERUSES.inc()
        subject = Subject("Pod", pod.name, pod.namespace, pod.uid)
        await self._events.event(subject, OVERUSED, message, kind=WARNING)


def _labels(gpu: Gpu) -> tuple[str, str]:
    return str(gpu.index), gpu.uuid
