"""All MPS daemons of this node: one for each GPU with isolation mode mps."""

import asyncio
import threading
from collections import defaultdict
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Final

import structlog

from gpucore.node.isolation.mps_grant import SHM, MpsPlace
from gpudeviceplugin import telemetry
from gpudeviceplugin.isolation.mps.folders import Folders, lay_out, open_to_all, sweep
from gpudeviceplugin.isolation.mps.phase import MpsDaemonPhase
from gpudeviceplugin.isolation.mps.supervisor import Program, Supervisor, Timing
from gpudeviceplugin.signals import Signal
from gpudeviceplugin.state import ignore

log = structlog.get_logger()

MULTI_USER: Final = "-M"
"""One server for clients of all users; without it users take turns (manual, "Volta MPS")."""


class Fleet:
    """The daemons.

    Args:
        place: where their directories are.
        control: the control program.
        multi_user: clients of different users share a GPU at the same time, as root.
        volume: path on the host of the memory that daemons and clients share, mounted at ``SHM``
            here; empty: a directory of the place's root.
        timing: of every supervisor.
    """

    def __init__(
        self,
        place: MpsPlace,
        *,
        control: str,
        multi_user: bool,
        volume: str = "",
        timing: Timing | None = None,
    ) -> None:
        self._place = place
        self._volume = volume
        flags = ("-f", MULTI_USER) if multi_user else ("-f",)
        self._program = Program(control, None if place.pipe else flags)
        self._timing = timing
        self._wanted: frozenset[str] = frozenset()
        self._changed = Signal()
        self._supervisors: dict[str, Supervisor] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._sweeping: asyncio.Task[None] | None = None
        self._no_sweep = threading.Event()
        self._turns: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self.on_change: Callable[[str, MpsDaemonPhase, MpsDaemonPhase, str], None] = ignore

    def want(self, uuids: Collection[str]) -> None:
        """Run daemons for these GPUs only."""
        if frozenset(uuids) != self._wanted:
            self._wanted = frozenset(uuids)
            self._changed.fire()

    def serving(self, uuid: str) -> bool:
        """New pods of the GPU may rely on its daemon."""
        supervisor = self._supervisors.get(uuid)
        return supervisor is not None and supervisor.phase is MpsDaemonPhase.SERVING

    async def run(self) -> None:
        """Start and stop daemons as they are wanted; when cancelled, stop all and return."""
        async with asyncio.TaskGroup() as group:
            while True:
                seen = self._changed.count
                self._adjust(group)
                await self._changed.beyond(seen)

    def _adjust(self, group: asyncio.TaskGroup) -> None:
        for uuid in set(self._supervisors) - self._wanted:
            del self._supervisors[uuid]
            self._tasks.pop(uuid).cancel()
            telemetry.forget_daemon(uuid)
        for uuid in self._wanted - set(self._supervisors):
            self._supervisors[uuid] = supervisor = self._supervisor(uuid)
            telemetry.MPS_SERVING.labels(uuid).set(0)
            self._tasks[uuid] = group.create_task(self._keep(uuid, supervisor))

    def _supervisor(self, uuid: str) -> Supervisor:
        made = Supervisor(uuid, self._program, self._folders(uuid), self._timing)

        def changed(before: MpsDaemonPhase, after: MpsDaemonPhase) -> None:
            telemetry.MPS_SERVING.labels(uuid).set(after is MpsDaemonPhase.SERVING)
            if after is MpsDaemonPhase.FAILED:
                telemetry.MPS_FAILURES.labels(uuid).inc()
            self.on_change(uuid, before, after, made.why)

        made.on_change = changed
        made.before_start = self._lay_out
        return made

    async def _keep(self, uuid: str, supervisor: Supervisor) -> None:
        async with self._turns[uuid]:  # its predecessor may still be stopping
            await supervisor.run()

    def _lay_out(self) -> None:
        """Make what all daemons share. Raises FolderError."""
        lay_out(Path(self._place.root), self._volume)
        open_to_all(self._shm)

    @property
    def _shm(self) -> Path:
        return Path(SHM) if self._volume else Path(self._place.shm)

    def unused(self) -> None:
        """No pod holds any part of a GPU with a daemon: what pods left in shared memory goes.

        It goes in a thread, for tenants choose how much there is.
        """
        running = self._sweeping is not None and not self._sweeping.done()
        if not self._place.pipe and not running and self._shm.is_dir():
            self._no_sweep = threading.Event()
            self._sweeping = asyncio.create_task(self._sweep(self._no_sweep))

    async def _sweep(self, stop: threading.Event) -> None:
        try:
            await asyncio.to_thread(sweep, self._shm, stop.is_set)
        except Exception as error:  # noqa: BLE001 - whatever a tenant left there ends no plugin
            log.warning("cannot clean the shared memory of MPS", path=self._shm, why=str(error))
        finally:
            stop.set()  # a cancelled task leaves its thread behind

    async def stop_sweep(self) -> None:
        """Return while no sweep runs: a pod that is given a GPU at once makes files of its own."""
        while self._sweeping is not None and not self._sweeping.done():
            self._no_sweep.set()
            await asyncio.wait({self._sweeping})

    def _folders(self, uuid: str) -> Folders:
        pipe = Path(self._place.pipe_of(uuid))
        return Folders(pipe, pipe.parent / "log")
