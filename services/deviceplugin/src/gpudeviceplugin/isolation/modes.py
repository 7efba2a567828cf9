"""Applies the requested isolation modes of the GPUs, and starts or stops their MPS daemons.

:mod:`gpucore.node.isolation.modes` decides the requested mode from the setting, the label and the
annotation for one GPU. A GPU in use keeps its mode, and after a restart continues with the one that
was published. Until the Node has been read no mode is known, and no device is offered: a GPU must
not be published as open first and as isolated a moment later.
"""

import asyncio
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Final

from gpucore.model import Inventory, IsolationMode
from gpucore.node.isolation.modes import (
    RequestedModes,
    ignores_limits,
    incapable,
    incapable_driver,
    published,
    requested_modes,
    settled,
)
from gpucore.units import GpuUuid
from gpucore.wire.node.spec import Node
from gpudeviceplugin.cluster.node_watch import NodeWatch
from gpudeviceplugin.state import NodeState, ignore

if TYPE_CHECKING:
    from gpudeviceplugin.isolation.driver_limits import DriverLimits
    from gpudeviceplugin.isolation.mps.fleet import Fleet


LOOK_SECONDS: Final = 2.0


class Isolation:
    """The isolation mode of every GPU.

    Args:
        state: of the node.
        watch: of its Node object.
        fleet: the MPS daemons; ``None`` where no GPU can have one.
        default: for GPUs that neither label nor annotation names; ``None``: the strongest mode that
            each supports.
        limits: the driver's memory limits; ``None`` where they are not used.

    Attributes:
        known: the isolation modes have been decided.
    """

    def __init__(
        self,
        state: NodeState,
        watch: NodeWatch,
        fleet: "Fleet | None",
        *,
        default: IsolationMode | None,
        limits: "DriverLimits | None" = None,
    ) -> None:
        self._state = state
        self._watch = watch
        self._fleet = fleet
        self._limits = limits
        self._default = default
        self._inventory = Inventory(gpus=())
        self._unable: dict[IsolationMode, dict[str, str]] = {}
        self._isolations: dict[str, IsolationMode] = {}
        self._faults: tuple[str, ...] = ()
        self._none_possible = fleet is None and limits is None
        self.known = self._none_possible
        self.on_change: Callable[[], None] = ignore
        self.on_faults: Callable[[tuple[str, ...]], None] = ignore

    def equip(
        self,
        inventory: Inventory,
        capabilities: Mapping[str, tuple[int, int]],
        limited: Collection[str] = (),
    ) -> None:
        """Set the GPUs and their compute capabilities.

        Args:
            inventory: the GPUs.
            capabilities: compute capabilities by uuid.
            limited: uuids of the GPUs for which the driver supports memory limits.
        """
        self._inventory = inventory
        ready = self._limits is not None and self._limits.ready()
        mps, driver = {}, {}
        for gpu in inventory.gpus:
            mps[gpu.uuid] = incapable(gpu, capabilities.get(gpu.uuid, (0, 0)))
            driver[gpu.uuid] = incapable_driver(
                gpu, inventory.driver, cgroup_v2=ready, answers=gpu.uuid in limited
            )
            if self._fleet is None:
                mps[gpu.uuid] = "MPS is not enabled in the plugin"
            if self._limits is None:
                driver[gpu.uuid] = "driver limits are not enabled in the plugin"
        both = {uuid: why or driver[uuid] for uuid, why in mps.items()}
        self._unable = {
            IsolationMode.MPS: _reasons(mps),
            IsolationMode.DRIVER: _reasons(driver),
            IsolationMode.DRIVER_MPS: _reasons(both),
        }
        self._look(trusted=False)

    def isolation(self, uuid: str) -> IsolationMode:
        """The isolation mode in force on a GPU; mode driver counts while its limits hold."""
        isolation = self._isolations.get(uuid, IsolationMode.NONE)
        if isolation.uses_driver and not (self._limits and self._limits.holds(uuid)):
            return IsolationMode.MPS if isolation.uses_mps else IsolationMode.NONE
        return isolation

    def usable(self, uuid: str) -> bool:
        """The GPU's isolation mode is operational: its MPS daemon serves where it needs one."""
        if self._fleet is None or not self.isolation(uuid).uses_mps:
            return True
        return self._fleet.serving(uuid)

    async def run(self, synced: asyncio.Event) -> None:
        """Follow until cancelled; until ``synced`` with kubelet no GPU counts as empty."""
        while not self._none_possible:
            seen = self._state.outlook_changed.count
            if self._look(trusted=synced.is_set()):
                self.on_change()
            await self._state.outlook_changed.beyond_or_after(seen, LOOK_SECONDS)

    def _look(self, *, trusted: bool) -> bool:
        """Decide anew; true when a GPU changed its isolation mode."""
        node = self._watch.node
        if self._none_possible or node is None or not self._inventory.gpus:
            return False
        requested = self._requested(node)
        before = {} if self.known else published(node)
        self._isolations = self._isolations if self.known else before
        isolations = settled(self._isolations, requested.isolations, self._busy(trusted=trusted))
        changed = isolations != self._isolations or not self.known
        self._isolations, self.known = isolations, True
        if self._fleet is not None:
            self._fleet.want([uuid for uuid, mode in isolations.items() if mode.uses_mps])
        if self._limits is not None:
            self._limits.want(_limited(isolations), _limited(before))
        self._tell(requested, isolations)
        return changed

    def _requested(self, node: Node) -> RequestedModes:
        return requested_modes(
            self._inventory.gpus,
            default=self._default,
            labels=node.labels,
            annotations=node.annotations,
            unable=self._unable,
        )

    def _busy(self, *, trusted: bool) -> set[str]:
        """GPUs in use, and those whose use is unknown."""
        reported = {gpu.uuid for gpu in self._state.inventory.gpus} if trusted else set[str]()
        return {
            gpu.uuid
            for gpu in self._inventory.gpus
            if gpu.uuid not in reported or self._state.in_use(gpu.index)
        }

    def _tell(self, requested: RequestedModes, isolations: Mapping[str, IsolationMode]) -> None:
        """Report each mode that cannot be applied, or not yet, once."""
        faults = [*requested.faults]
        for gpu in self._inventory.gpus:
            if isolations[gpu.uuid] is not requested.isolations[gpu.uuid]:
                now, later = isolations[gpu.uuid].value, requested.isolations[gpu.uuid].value
                faults.append(
                    f"GPU {gpu.index} keeps isolation mode {now} until no pod uses "
                    f"it, then changes to {later}"
                )
        by_mps = IsolationMode.MPS in isolations.values()
        if by_mps and ignores_limits(self._inventory.driver):
            driver = self._inventory.driver
            faults.append(f"driver {driver} is older than 495: MPS limits threads, but not memory")
        if tuple(faults) != self._faults:
            news = tuple(fault for fault in faults if fault not in self._faults)
            self._faults = tuple(faults)
            self.on_faults(news)


def _reasons(by_uuid: Mapping[GpuUuid, str]) -> dict[str, str]:
    return {uuid: why for uuid, why in by_uuid.items() if why}


def _limited(isolations: Mapping[str, IsolationMode]) -> list[str]:
    return [uuid for uuid, isolation in isolations.items() if isolation.uses_driver]
