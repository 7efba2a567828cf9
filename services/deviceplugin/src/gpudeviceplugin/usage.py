"""Measures what is really used: bytes of each card, by pod, against what was handed out.

Processes are told apart by the control groups of the host, so this needs to see the host's
``/proc``; where it does not, usage is that of nobody. Nothing is enforced here: who uses more than
its share is told so, and seen in the metrics.
"""

import asyncio
import time
from pathlib import Path
from typing import Final, NamedTuple

import structlog

from gpucore.model import Gpu
from gpucore.node.attribution import Attribution, attribute, owners
from gpucore.node.devices import Resource
from gpucore.node.overuse import Over, Reminders, over_use
from gpucore.units import PodUid
from gpucore.wire.pods import Pod
from gpudeviceplugin import telemetry
from gpudeviceplugin.cards import DriverError, Usage
from gpudeviceplugin.driver import PatientDriver
from gpudeviceplugin.events import WARNING, Events, Subject
from gpudeviceplugin.limits import LimitWatch
from gpudeviceplugin.state import NodeState

log = structlog.get_logger()

OVERUSED: Final = "GpuMemoryOverused"
MIB: Final = 1024 * 1024


class Watch(NamedTuple):
    """How the memory is watched.

    Attributes:
        proc: the host's processes.
        every: seconds between two rounds.
        slack: bytes beyond its share that a pod may use before it is told.
    """

    proc: Path
    every: float
    slack: int


class UsageMeter:
    """Fills the metrics of memory granted and used, and tells pods that use too much."""

    def __init__(
        self,
        state: NodeState,
        driver: PatientDriver,
        events: Events,
        watch: Watch,
        limits: LimitWatch,
    ) -> None:
        self._state = state
        self._driver = driver
        self._events = events
        self._watch = watch
        self._limits = limits
        self._reminders = Reminders()

    async def run(self) -> None:
        """Measure every so often, until cancelled."""
        while True:
            seen = self._state.inventory_changed.count
            await self.measure()
            await self._state.inventory_changed.beyond_or_after(seen, self._watch.every)

    async def measure(self) -> None:
        """One round over all cards; a card that does not answer keeps its last figures."""
        telemetry.POD_GRANTED.clear()
        telemetry.POD_USED.clear()
        telemetry.POD_OVER.clear()
        for gpu in self._state.inventory.gpus:
            self._granted(gpu)
            try:
                usage = await self._driver.usage(gpu.uuid)
            except DriverError as error:
                log.debug("no usage", uuid=gpu.uuid, why=str(error))
                continue
            cgroups = await asyncio.to_thread(self._cgroups, usage)
            found = attribute({each.pid: each.used_bytes for each in usage.processes}, cgroups)
            self._used(gpu, usage, found)
            self._limits.measured(gpu, usage, owners(cgroups), self._whole(gpu))
            await self._judge(gpu, found)
        await self._limits.publish()

    def _granted(self, gpu: Gpu) -> None:
        steering = self._state.steering
        held = steering.holdings.by_pod(steering.tables[Resource.MEM], gpu.index)
        telemetry.CARD_GRANTED.labels(str(gpu.index), gpu.uuid).set(sum(held.values()))
        for (namespace, pod), units in held.items():
            telemetry.POD_GRANTED.labels(str(gpu.index), namespace, pod).set(units)

    def _cgroups(self, usage: Usage) -> dict[int, str]:
        return {each.pid: self._cgroup(each.pid) for each in usage.processes}

    def _cgroup(self, pid: int) -> str:
        try:
            return (self._watch.proc / str(pid) / "cgroup").read_text()
        except OSError:  # it has ended, or this container does not see the host's processes
            return ""

    def _used(self, gpu: Gpu, usage: Usage, found: Attribution) -> None:
        nobody = found.nobody
        telemetry.CARD_USED.labels(str(gpu.index), gpu.uuid).set(usage.used_bytes)
        for uid, size in found.pods.items():
            pod = self._state.pods.get(uid)
            if pod is None:
                nobody += size
            else:
                telemetry.POD_USED.labels(str(gpu.index), pod.namespace, pod.name).set(size)
        telemetry.UNATTRIBUTED.labels(str(gpu.index), gpu.uuid).set(nobody)

    async def _judge(self, gpu: Gpu, found: Attribution) -> None:
        """Tell the pods that use more of the card than they were given."""
        over = over_use(
            gpu.index,
            used=found.pods,
            granted=self._grants(gpu),
            exempt=self._exempt(gpu, found),
            slack=self._watch.slack,
        )
        for each in over:
            pod = self._state.pods[each.pod]
            labels = (str(gpu.index), pod.namespace, pod.name)
            telemetry.POD_OVER.labels(*labels).set(each.used - each.granted)
        for each in self._reminders.due(gpu.index, over, time.monotonic()):
            await self._tell(self._state.pods[each.pod], each)

    def _grants(self, gpu: Gpu) -> dict[PodUid, int]:
        """Bytes of the card that each pod was given."""
        steering, unit = self._state.steering, self._state.inventory.unit
        held = steering.holdings.by_pod(steering.tables[Resource.MEM], gpu.index)
        size = unit.mib * MIB if unit else 0
        return {
            uid: held[pod.namespace, pod.name] * size
            for uid, pod in self._state.pods.items()
            if (pod.namespace, pod.name) in held
        }

    def _exempt(self, gpu: Gpu, found: Attribution) -> set[PodUid]:
        """Pods without a share: those with the whole card, and those that ask for no memory.

        Among the latter is this plugin's own pod, in which the MPS servers run.
        """
        exempt = self._whole(gpu)
        for uid in found.pods:
            pod = self._state.pods.get(uid)
            if pod is None or not self._shares(pod):
                exempt.add(uid)
        return exempt

    def _whole(self, gpu: Gpu) -> set[PodUid]:
        """Pods that have the GPU exclusively."""
        steering = self._state.steering
        whole = steering.holdings.by_pod(steering.tables[Resource.GPU], gpu.index)
        return {uid for uid, pod in self._state.pods.items() if (pod.namespace, pod.name) in whole}

    def _shares(self, pod: Pod) -> bool:
        holdings = self._state.steering.holdings
        return bool(holdings.held_by(Resource.MEM, pod.namespace, pod.name))

    async def _tell(self, pod: Pod, over: Over) -> None:
        message = (
            f"uses {over.used // MIB} MiB of card {over.card}, but was given {over.granted // MIB}"
        )
        log.warning("over-use", pod=f"{pod.namespace}/{pod.name}", why=message)
        telemetry.OVERUSES.inc()
        subject = Subject("Pod", pod.name, pod.namespace, pod.uid)
        await self._events.tell(subject, OVERUSED, message, kind=WARNING)
