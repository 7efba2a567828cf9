"""The order of a node's GPUs in which first fit is the policy's choice.

kube-scheduler allocates the first device of a ResourceSlice that fits a claim. With binpack and
spread the first GPU of this order that fits is what the policy chooses, for every size of a share.
Fragmentation depends on the size: the order is exact for the usual share and close to it otherwise.

The device plugin publishes the order and does not know the learned mix, so the order never follows
that: what-if and replay predict what is published.
"""

from gpucore.accounting.device_info import DeviceInfo
from gpucore.accounting.node_info import NodeInfo
from gpucore.model import ContainerRequest, PodRequest
from gpucore.scheduling.policy import Policy, resolve
from gpucore.units import GpuIndex

_PARTS = 4
"""The usual share of a node without any share is this part of its largest GPU."""


def usual_share(node_info: NodeInfo) -> int:
    """The median of the shares on the node in units; a quarter of a GPU while there are none."""
    held = [hold.mem for device in node_info.devices.values() for hold in device.holders.values()]
    shares = [mem for mem in held if mem]
    if not shares:
        return max(node_info.shape.largest_gpu // _PARTS, 1)
    return sorted(shares)[(len(shares) - 1) // 2]


def device_order(
    node_info: NodeInfo, policy: str | Policy = "", *, usual: int = 0
) -> tuple[GpuIndex, ...]:
    """All GPUs of the node, the one to fill first at the front; full GPUs come last.

    Args:
        policy: as in :func:`gpucore.scheduling.policy.place`.
        usual: units of the usual share; 0 takes :func:`usual_share`.
    """
    size = usual or usual_share(node_info)
    chosen = resolve(node_info, _share(size), policy)
    known = _without_mix(node_info)
    gpus = [device for device in known.devices.values() if device.gpu is not None]
    ranked = sorted(gpus, key=lambda device: _rank(known, device, chosen, size))
    return tuple(device.index for device in ranked)


def _without_mix(node_info: NodeInfo) -> NodeInfo:
    if node_info.host is None:
        return node_info
    found = node_info.copy()
    found.host = None
    return found


def _rank(
    node_info: NodeInfo, device: DeviceInfo, policy: Policy, size: int
) -> tuple[bool, tuple[float, ...]]:
    """The policy's key for the usual share, or for all that is left where that is less."""
    if not device.open or not device.free:
        return True, ()
    return False, policy.key(node_info, device, _share(min(size, device.free)))


def _share(units: int) -> PodRequest:
    return PodRequest((ContainerRequest(mem=units),), mem=units)
