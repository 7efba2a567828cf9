"""The driver's memory limits of a claim: in force before a container of the claim starts.

kubelet has made the cgroups of its pods by the time it prepares the claim, and the claim names the
pods, so nothing has to be matched. An error keeps kubelet from starting the containers.
"""

from collections.abc import Collection

from gpucore.model import Gpu
from gpucore.node.claims.held import bytes_on, users_of
from gpucore.node.claims.prepare import ClaimError
from gpucore.node.claims.prepared import PreparedClaim
from gpucore.node.isolation.driver_limits import MemoryLimit, limit_of
from gpucore.units import PodUid
from gpudeviceplugin.isolation.driver_limits import DriverLimits
from gpudeviceplugin.isolation.shares import allocated_limits, is_whole
from gpudeviceplugin.state import NodeState


class ClaimLimits:
    """Sets the limits of claims by those of the node."""

    def __init__(self, state: NodeState, limits: DriverLimits) -> None:
        self._state = state
        self._limits = limits

    async def enforce(self, claim: PreparedClaim, pods: Collection[PodUid]) -> None:
        """Have the limits of these pods in force on every GPU of the claim.

        Args:
            claim: prepared.
            pods: for which it is reserved; those that use it by the watch where none is given.

        Raises:
            ClaimError: one is not.
        """
        uuids = {device.uuid for device in claim.devices}
        mine = [gpu for gpu in self._state.inventory.gpus if gpu.uuid in uuids]
        limited = self._limits.limited([gpu.index for gpu in mine])
        if not limited:
            return
        pods = pods or users_of(claim, self._state.pods.values())
        if not pods:
            raise ClaimError("the claim is reserved for no pod that is known")
        for uid in self._starting(pods):
            wanted = {gpu: self._wanted(gpu, claim, uid, len(pods)) for gpu in limited}
            why = await self._limits.put_in_force(uid, wanted)
            if why:
                raise ClaimError(f"the memory limit of the claim is not in force: {why}")
        self._limits.look_soon()

    def _starting(self, pods: Collection[PodUid]) -> Collection[PodUid]:
        """The pods that may start containers: kubelet makes the cgroup of a pod before it prepares.

        Others for which the claim is reserved have ended, or get their limits with their cgroups.
        """
        return [uid for uid in pods if self._limits.has_cgroup(uid)] or pods

    def _wanted(self, gpu: Gpu, claim: PreparedClaim, uid: PodUid, pods: int) -> MemoryLimit | None:
        """The pod's limit on the GPU; that of the claim alone while the watch lacks the pod."""
        known = allocated_limits(self._state, gpu).get(uid)
        size = bytes_on(claim, gpu)
        if known is not None or is_whole(self._state, gpu, size):
            return known
        return limit_of(size // pods)
