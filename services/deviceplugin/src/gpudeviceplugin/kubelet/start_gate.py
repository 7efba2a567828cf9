"""Lets a container start only once its pod's memory limit is in force and it is the pod's turn.

kubelet calls before each start of a container, restarts included, and names its device IDs. The
cgroup of the pod exists by then. Whose the IDs are is read from kubelet again for every call, so
that a limit is never set on the pod that a guess named.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection
from typing import TYPE_CHECKING, Final

from gpucore.node.allocation.device_ids import Resource
from gpucore.node.isolation.starting import StartingPod, starting_pod
from gpucore.units import GpuIndex
from gpucore.wire.pod.spec import Pod
from gpudeviceplugin.isolation.modes import Isolation
from gpudeviceplugin.isolation.start_turns import StartTurns
from gpudeviceplugin.kubelet.pod_resources import PodResourcesError
from gpudeviceplugin.state import NodeState

if TYPE_CHECKING:
    from gpudeviceplugin.isolation.driver_limits import DriverLimits

WAIT_SECONDS: Final = 20.0
"""kubelet waits 30 seconds, and retries a start that was refused."""
FIRST_PAUSE_SECONDS: Final = 0.02
LONGEST_PAUSE_SECONDS: Final = 1.0


class StartGate:
    """Decides whether a container with a share of memory may start.

    Args:
        limits: the driver's memory limits; ``None`` where they are not used.
        turns: of pods that start one after the other; ``None`` where they are not used.
        read: reads kubelet's allocations into the state; raises PodResourcesError.
        seconds: longest wait for a limit.
    """

    def __init__(
        self,
        state: NodeState,
        limits: "DriverLimits | None",
        turns: StartTurns | None,
        read: Callable[[], Awaitable[object]],
        isolation: Isolation,
        *,
        seconds: float = WAIT_SECONDS,
    ) -> None:
        self._state = state
        self._limits = limits
        self._turns = turns
        self._read = read
        self._isolation = isolation
        self._seconds = seconds

    async def wait(self, ids: tuple[str, ...]) -> str:
        """Wait until the container with these IDs may start; returns why it may not, or ''."""
        clock = asyncio.get_running_loop().time
        deadline, pause = clock() + self._seconds, FIRST_PAUSE_SECONDS
        why = await self._check(ids)
        while why and clock() + pause < deadline:
            await asyncio.sleep(pause)
            pause = min(pause * 2, LONGEST_PAUSE_SECONDS)
            why = await self._check(ids)
        return why

    async def _check(self, ids: tuple[str, ...]) -> str:
        gpus = self._state.matcher.tables[Resource.MEM].per_device(ids)
        early = self._too_early(gpus)
        limited = bool(self._limits and self._limits.limited(gpus))
        if early or not (limited or self._turns):
            return early
        try:
            await self._read()
        except PodResourcesError as error:
            return f"cannot read kubelet's allocations: {error}" if limited else ""
        found = self._whose(ids)
        pod = None if found is None else self._pod(found)
        if found is None or pod is None:  # without a limit to set, nothing is worth a refusal
            unknown = "it is not known yet which pod the container belongs to"
            return unknown if limited else ""
        return await self._allow(pod, found, gpus)

    def _too_early(self, gpus: Collection[GpuIndex]) -> str:
        """Why it is still undecided whether the driver limits these GPUs; empty where it is not."""
        if self._limits is None:
            return ""
        if not self._isolation.known:
            return "the isolation modes of the GPUs are not known yet"
        return "" if gpus else "the device IDs belong to no GPU of this node"

    async def _allow(self, pod: Pod, found: StartingPod, gpus: Collection[GpuIndex]) -> str:
        why = self._limits and await self._limits.enforce(pod, found.ids)
        if why:
            return f"the driver's memory limit of the pod is not in force: {why}"
        return self._turns.take(pod, gpus) if self._turns else ""

    def seen(self, pod: Pod, line: bytes) -> None:
        """Kubelet has written the status of a pod."""
        if self._turns is not None:
            self._turns.seen(pod, line)

    def listed(self, page: bytes) -> None:
        """A page of a list of all pods of the node."""
        if self._turns is not None:
            self._turns.listed(page)

    def _whose(self, ids: tuple[str, ...]) -> StartingPod | None:
        """Kubelet lists ended pods too, whose IDs others may have."""
        known = self._state.pods.values()
        live = {(pod.namespace, pod.name) for pod in known if not pod.finished}
        account = self._state.account_with_lost()
        return starting_pod(ids, [each for each in account if (each.namespace, each.name) in live])

    def _pod(self, found: StartingPod) -> Pod | None:
        """The newest pod of that name: kubelet starts no containers of one that it replaces."""
        name = (found.namespace, found.name)
        pods = self._state.pods.values()
        same = [pod for pod in pods if (pod.namespace, pod.name) == name and not pod.finished]
        return max(same, key=lambda pod: pod.creation, default=None)


def gate_of(
    state: NodeState,
    limits: "DriverLimits | None",
    turns: StartTurns | None,
    read: Callable[[], Awaitable[object]],
    isolation: Isolation,
) -> StartGate | None:
    """The gate; ``None`` where no start has to wait, so that kubelet does not call."""
    return StartGate(state, limits, turns, read, isolation) if limits or turns else None
