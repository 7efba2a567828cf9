"""Measures what is really used: bytes of each card, by pod, against what was handed out.

Processes are told apart by the control groups of the host, so this needs to see the host's
``/proc``; where it does not, usage is that of nobody. Nothing is enforced here.
"""

import asyncio
from pathlib import Path
from typing import Final

import structlog

from gpucore.model import Gpu
from gpucore.node.attribution import Attribution, attribute
from gpucore.node.devices import Resource
from gpudeviceplugin import telemetry
from gpudeviceplugin.cards import DriverError, Usage
from gpudeviceplugin.driver import PatientDriver
from gpudeviceplugin.state import NodeState

log = structlog.get_logger()

EVERY_SECONDS: Final = 15.0


class UsageMeter:
    """Fills the metrics of memory granted and used."""

    def __init__(self, state: NodeState, driver: PatientDriver, proc: Path) -> None:
        self._state = state
        self._driver = driver
        self._proc = proc

    async def run(self) -> None:
        """Measure every so often, until cancelled."""
        while True:
            seen = self._state.inventory_changed.count
            await self.measure()
            await self._state.inventory_changed.beyond_or_after(seen, EVERY_SECONDS)

    async def measure(self) -> None:
        """One round over all cards; a card that does not answer keeps its last figures."""
        telemetry.POD_GRANTED.clear()
        telemetry.POD_USED.clear()
        for gpu in self._state.inventory.gpus:
            self._granted(gpu)
            try:
                usage = await self._driver.usage(gpu.uuid)
            except DriverError as error:
                log.debug("no usage", uuid=gpu.uuid, why=str(error))
                continue
            found = await asyncio.to_thread(self._attributed, usage)
            self._used(gpu, usage, found)

    def _granted(self, gpu: Gpu) -> None:
        steering = self._state.steering
        held = steering.holdings.by_pod(steering.tables[Resource.MEM], gpu.index)
        telemetry.CARD_GRANTED.labels(str(gpu.index), gpu.uuid).set(sum(held.values()))
        for (namespace, pod), units in held.items():
            telemetry.POD_GRANTED.labels(str(gpu.index), namespace, pod).set(units)

    def _attributed(self, usage: Usage) -> Attribution:
        used = {process.pid: process.used_bytes for process in usage.processes}
        return attribute(used, {pid: self._cgroup(pid) for pid in used})

    def _cgroup(self, pid: int) -> str:
        try:
            return (self._proc / str(pid) / "cgroup").read_text()
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
