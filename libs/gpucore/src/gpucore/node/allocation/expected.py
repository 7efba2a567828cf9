"""The pods kubelet is about to admit, as a list of steps in kubelet's own order.

Kubelet takes one container after the other, init containers first, and for each one every resource
in no particular order. A plan has the GPUs for a step; it is empty for a pod that bypassed the
extender.
"""

from collections.abc import Mapping
from typing import Final

import msgspec

from gpucore.model import ContainerRequest, GpuAmounts, PodRequest
from gpucore.node.allocation.device_ids import Resource
from gpucore.units import PodUid

NOWHERE: Final[Mapping[Resource, GpuAmounts]] = {}


class ExpectedContainer(msgspec.Struct, frozen=True):
    """One container of a pod.

    Attributes:
        request: its request; never empty.
        plan: amount of each resource on each GPU; empty without a plan.
        init: it is an init container.
    """

    container: str
    request: ContainerRequest
    plan: Mapping[Resource, GpuAmounts] = NOWHERE
    init: bool = False


class Expected(msgspec.Struct, frozen=True):
    """A pod that is bound to this node and requests GPUs.

    Attributes:
        creation: RFC 3339 time; kubelet's order after it restarts.
        gpu_count: number of GPUs over which the request is spread.
        pod_request: of the whole pod.
        steps: containers with a request, in kubelet's order.
        waiting: kubelet may still have to admit it.
        bursts: it may use more than its share where the driver limits memory.
        alone: its share has its GPUs to itself, as recorded at the bind, else by its label.
    """

    uid: PodUid
    namespace: str
    name: str
    creation: str
    gpu_count: int
    pod_request: PodRequest
    steps: tuple[ExpectedContainer, ...]
    waiting: bool = True
    bursts: bool = False
    alone: bool = False
