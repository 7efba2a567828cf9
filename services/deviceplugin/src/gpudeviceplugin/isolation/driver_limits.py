"""Keeps the driver's memory limits of pods equal to their shares, and shows where they are not.

A limit is set on the cgroup of the pod, for each GPU in mode driver on which the pod has a share.
What is wanted follows from kubelet's account, what is in force is read from the driver, and each
look brings the second to the first: a restarted plugin needs no memory of its own. While the limit
of one pod is not in force, its GPU is offered without the mode.
"""

import asyncio
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from typing import Final, NamedTuple

import structlog

from gpucore.model import Gpu
from gpucore.node.allocation.device_ids import Resource
from gpucore.node.isolation.driver_limits import NO_LIMIT, Finding, MemoryLimit, judge
from gpucore.node.isolation.overuse import AGAIN_SECONDS
from gpucore.units import GpuIndex, PodUid
from gpucore.wire.pod.spec import Pod
from gpudeviceplugin import telemetry
from gpudeviceplugin.cluster.events import WARNING, Events, Subject
from gpudeviceplugin.gpus.devices import DriverError
from gpudeviceplugin.gpus.driver import PatientDriver
from gpudeviceplugin.isolation.awaited_cgroups import AwaitedCgroups
from gpudeviceplugin.isolation.cgroup_tree import CgroupTree
from gpudeviceplugin.isolation.limit_changes import LimitChange, LimitChanges
from gpudeviceplugin.isolation.shares import allocated_limits, share_limit
from gpudeviceplugin.signals import Signal
from gpudeviceplugin.state import NodeState, ignore

log = structlog.get_logger()

NOT_IN_FORCE: Final = "GpuLimitNotInForce"
PENDING_SECONDS: Final = 0.05
"""First pause while kubelet has yet to make the cgroup of an admitted pod; then it doubles."""
BROKEN_SECONDS: Final = 1.0


class _Key(NamedTuple):
    uuid: str
    pod: PodUid


class _Confirmed(NamedTuple):
    cgroup: str
    limit: MemoryLimit


class DriverLimits:
    """The limits of this node's pods.

    Args:
        interval_seconds: seconds between two looks when nothing happens.

    Attributes:
        on_change: is called when a GPU is to be offered with the mode, or no longer.
    """

    def __init__(
        self,
        state: NodeState,
        driver: PatientDriver,
        events: Events,
        tree: CgroupTree,
        *,
        interval_seconds: float,
    ) -> None:
        self._state = state
        self._driver = driver
        self._events = events
        self._tree = tree
        self._awaited = AwaitedCgroups(tree)
        self._interval_seconds = interval_seconds
        self._wanted: frozenset[str] = frozenset()
        self._holding: set[str] = set()
        self._confirmed: dict[_Key, _Confirmed] = {}
        self._reported: dict[_Key, float] = {}
        self._changes = LimitChanges(driver, events)
        self._changed = Signal()
        self._setting = asyncio.Lock()
        self.on_change: Callable[[], None] = ignore

    def ready(self) -> bool:
        """The cgroups of pods exist."""
        return bool(self._tree.pods())

    def want(self, uuids: Collection[str], holding: Collection[str] = ()) -> None:
        """Set the GPUs in mode driver.

        Args:
            uuids: of the GPUs.
            holding: those of which an earlier plugin has published that the limits hold.
        """
        self._holding |= set(holding)
        if frozenset(uuids) != self._wanted:
            self._wanted = frozenset(uuids)
            self._changed.fire()

    def seen(self, pod: Pod) -> None:
        """A pod has changed: its annotation may ask for another maximum.

        A look that is under way may have read the annotation before. kubelet makes no call for a
        new pod that uses a claim which is prepared already.
        """
        if self._setting.locked() or self._asks_for_other(pod):
            self._changed.fire()

    def _asks_for_other(self, pod: Pod) -> bool:
        new = pod.phase == "Pending" and self._state.claims.uses(pod)
        gpus = [gpu for gpu in self._state.inventory.gpus if gpu.uuid in self._wanted]
        known = {gpu: self._confirmed.get(_Key(gpu.uuid, pod.uid)) for gpu in gpus}
        return any(
            (confirmed and confirmed.limit) != allocated_limits(self._state, gpu).get(pod.uid)
            for gpu, confirmed in known.items()
            if new or confirmed is not None
        )

    def look_soon(self) -> None:
        """Check soon, since allocations changed."""
        self._changed.fire()

    def holds(self, uuid: str) -> bool:
        """Every limit of this GPU was in force at the last look."""
        return uuid in self._holding and uuid in self._wanted

    def limited(self, indexes: Collection[GpuIndex]) -> list[Gpu]:
        """The given GPUs that are in mode driver."""
        gpus = self._state.inventory.gpus
        return [gpu for gpu in gpus if gpu.uuid in self._wanted and gpu.index in indexes]

    async def enforce(self, pod: Pod, ids: Collection[str]) -> str:
        """Set the limits of a pod with these device IDs; returns why one is not in force, or ''."""
        gpus = self._state.matcher.tables[Resource.MEM].per_device(ids)
        limited = self.limited(gpus)
        wanted = {gpu: share_limit(self._state, pod, gpu, gpus[gpu.index]) for gpu in limited}
        return await self.put_in_force(pod.uid, wanted)

    def has_cgroup(self, uid: PodUid) -> bool:
        """The cgroup of the pod is on the node."""
        return bool(self._tree.of_pod(uid))

    async def put_in_force(self, uid: PodUid, wanted: Mapping[Gpu, MemoryLimit | None]) -> str:
        """Set the limits of a pod; returns why one is not in force, or ''."""
        cgroup = self._tree.of_pod(uid)
        if not cgroup:
            return f"the cgroup of pod {self._name(uid)} was not found on the node"
        async with self._setting:
            for gpu, limit in wanted.items():
                if limit is None:
                    continue
                try:
                    change, after = await self._set(gpu, cgroup, limit, None)
                except DriverError as error:
                    return f"GPU {gpu.index}: {error}"
                if after != change.target:
                    return f"GPU {gpu.index}: the driver answers with {_words(after, limit)}"
        return ""

    def _name(self, uid: PodUid) -> str:
        pod = self._state.pods.get(uid)
        return f"{pod.namespace}/{pod.name}" if pod else uid

    async def used(self, gpu: Gpu) -> dict[PodUid, int]:
        """Bytes of the GPU that each pod with a limit uses, contexts included."""
        found: dict[PodUid, int] = {}
        for key, confirmed in list(self._confirmed.items()):
            if key.uuid == gpu.uuid and gpu.uuid in self._wanted:
                with suppress(DriverError):  # the process sums count then
                    found[key.pod] = await self._driver.memory_used(key.uuid, confirmed.cgroup)
        return found

    async def run(self, synced: asyncio.Event) -> None:
        """Check after every change and periodically, once kubelet has reported its allocations."""
        await synced.wait()
        pending = PENDING_SECONDS
        while True:
            seen = self._changed.count
            findings = await self.look()
            pauses = [self._interval_seconds]
            pauses += [BROKEN_SECONDS] if Finding.BROKEN in findings else []
            pauses += [pending] if Finding.PENDING in findings else []
            await self._awaited.wait(self._changed, seen, min(pauses))
            fresh = self._changed.count > seen
            pending = PENDING_SECONDS if fresh else min(pending * 2, self._interval_seconds)

    async def look(self) -> set[Finding]:
        """Bring all limits to what they should be; returns what was found."""
        async with self._setting:  # what is wanted must not be older than a limit set meanwhile
            return await self._look()

    async def _look(self) -> set[Finding]:
        gpus = [gpu for gpu in self._state.inventory.gpus if gpu.uuid in self._wanted]
        wanted = {
            _Key(gpu.uuid, uid): limit
            for gpu in gpus
            for uid, limit in allocated_limits(self._state, gpu).items()
            if not self._state.pods[uid].finished
        }
        await self._remove(wanted.keys())
        self._reported = {key: at for key, at in self._reported.items() if key in wanted}
        found: dict[_Key, Finding] = {}
        for gpu in gpus:
            for key in [key for key in wanted if key.uuid == gpu.uuid]:
                found[key] = await self._keep(gpu, key, wanted[key])
        self._awaited.expect(self._later_pods(found))
        self._publish(gpus, found)
        return set(found.values())

    def _later_pods(self, found: Mapping[_Key, Finding]) -> set[PodUid]:
        """Pods with claims whose cgroups kubelet is about to make."""
        claims = self._state.claims
        pending = {key.pod for key, finding in found.items() if finding is Finding.PENDING}
        pods = [self._state.pods[uid] for uid in pending & self._state.pods.keys()]
        return {pod.uid for pod in pods if not pod.terminating and claims.uses(pod)}

    async def _keep(self, gpu: Gpu, key: _Key, wanted: MemoryLimit) -> Finding:
        pod = self._state.pods.get(key.pod)
        cgroup = self._tree.of_pod(key.pod)
        if pod is None or (not cgroup and self._runs_nothing(key, pod)):
            return Finding.PENDING
        if not cgroup:
            return await self._broken(gpu, pod, "its cgroup was not found on the node")
        known = self._confirmed.pop(key, None)
        known = known if known and known.cgroup == cgroup else None
        try:
            change, after = await self._set(gpu, cgroup, wanted, known)
        except DriverError as error:
            return await self._broken(gpu, pod, str(error))
        confirmed = known is not None and known.limit == change.target
        if after == change.target:
            self._confirmed[key] = _Confirmed(cgroup, after)
        if judge(change.target, change.before, after=after, confirmed=confirmed) is Finding.BROKEN:
            return await self._broken(gpu, pod, _words(change.before, change.target))
        await self._changes.report(gpu, pod, change)
        return Finding.HOLDS

    def _runs_nothing(self, key: _Key, pod: Pod) -> bool:
        """The pod without a cgroup has no process; kubelet may report its end much later.

        No cgroup with a process in it can be removed.
        """
        return pod.terminating or pod.phase != "Running" or key in self._confirmed

    async def _set(
        self, gpu: Gpu, cgroup: str, wanted: MemoryLimit, known: _Confirmed | None
    ) -> tuple[LimitChange, MemoryLimit]:
        """The change, and the limit in force after it.

        A limit that is not the one that was known to be in force is another program's: it is never
        kept.
        """
        read = await self._driver.memory_limit(gpu.uuid, cgroup)
        change = LimitChange(wanted, read, wanted)
        if known is None or known.limit == read:
            change = await self._changes.between(gpu, cgroup, read, wanted)
        if read == change.target:
            return change, read
        await self._driver.set_memory_limit(gpu.uuid, cgroup, change.target)
        return change, await self._driver.memory_limit(gpu.uuid, cgroup)

    async def _remove(self, wanted: Collection[_Key]) -> None:
        """Take off limits of pods that have no share any more and whose cgroup is still there.

        A pod that was deleted by force, or is past its deadline, may run for its whole grace
        period: without its limit it could take the memory of its neighbours.
        """
        for key in [key for key in self._confirmed if key not in wanted]:
            cgroup = self._confirmed[key].cgroup
            there = self._tree.of_pod(key.pod) == cgroup
            if there and self._tree.populated(cgroup):
                continue
            del self._confirmed[key]
            if not there:
                continue  # the limits went with the cgroup
            try:
                await self._driver.set_memory_limit(key.uuid, cgroup, NO_LIMIT)
            except DriverError as error:
                log.warning("cannot take off a memory limit", cgroup=cgroup, why=str(error))

    async def _broken(self, gpu: Gpu, pod: Pod, why: str) -> Finding:
        key, now = _Key(gpu.uuid, pod.uid), time.monotonic()
        if now - self._reported.get(key, -AGAIN_SECONDS) >= AGAIN_SECONDS:
            self._reported[key] = now
            message = f"the driver's memory limit of its share of GPU {gpu.index} is off: {why}"
            log.warning("limit not in force", pod=f"{pod.namespace}/{pod.name}", why=message)
            subject = Subject("Pod", pod.name, pod.namespace, pod.uid)
            await self._events.event(subject, NOT_IN_FORCE, message, kind=WARNING)
        return Finding.BROKEN

    def _publish(self, gpus: Collection[Gpu], found: dict[_Key, Finding]) -> None:
        telemetry.LIMIT_IN_FORCE.clear()
        telemetry.LIMIT_BYTES.clear()
        index: dict[str, str] = {gpu.uuid: str(gpu.index) for gpu in gpus}
        for key, finding in found.items():
            pod = self._state.pods.get(key.pod)
            if pod is not None and finding is not Finding.PENDING:
                labels = (index[key.uuid], pod.namespace, pod.name)
                telemetry.LIMIT_IN_FORCE.labels(*labels).set(finding is Finding.HOLDS)
                if key in self._confirmed:
                    telemetry.LIMIT_BYTES.labels(*labels).set(self._confirmed[key].limit.hard)
        broken = {key.uuid for key, finding in found.items() if finding is Finding.BROKEN}
        unseen = self._holding & (self._wanted - index.keys())  # not in the inventory yet
        holding = unseen | (index.keys() - broken)
        if holding != self._holding:
            self._holding = holding
            self.on_change()


def _words(read: MemoryLimit, wanted: MemoryLimit) -> str:
    return f"hard limit {read.hard}, soft limit {read.soft}, wanted {wanted.hard} bytes"
