"""What a place of a gang is for: pods whose requests need the same of GPUs share their places.

Pods of one gang may have different requests, such as a launcher and its workers. The place of one
kind is of no use to the other, so it stays while pods of its own kind wait.
"""

import msgspec

from gpucore.model import Allocation, Placement, PodRequest
from gpucore.scheduling.device_fit import per_device
from gpucore.units import GpuIndex


class PlaceShape(msgspec.Struct, frozen=True):
    """What a place holds.

    Attributes:
        exclusive: number of exclusive GPUs.
        gpus: number of GPUs, exclusive or shared.
        mem, core: units and percent on each shared GPU.
        alone: a share that has its GPUs to itself.
    """

    exclusive: int
    gpus: int
    mem: int
    core: int
    alone: bool


def shape_of(pod_request: PodRequest) -> PlaceShape:
    """The places for pods with this request."""
    mem, core = per_device(pod_request)
    gpus = pod_request.gpus or pod_request.gpu_count
    return PlaceShape(pod_request.gpus, gpus, mem, core, pod_request.whole_device)


def shape_of_place(place: Allocation) -> PlaceShape:
    """The shape of a place that is reserved."""
    placement = place.placement
    mem, core = (max(part.values(), default=0) for part in (placement.mem, placement.core))
    gpus = len(gpus_of(placement))
    return PlaceShape(len(placement.group), gpus, mem, core, place.exclusive)


def gpus_of(placement: Placement) -> tuple[GpuIndex, ...]:
    """The GPUs of a placement, exclusive or shared."""
    return placement.group or tuple(placement.mem or placement.core)
