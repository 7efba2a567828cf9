"""What nodes offer to claims, and the objects by which pods request it, as one value."""

from collections.abc import Iterable, Mapping

import msgspec

from gpucore.accounting.node_info import NodeInfo
from gpucore.units import GpuIndex, NodeName
from gpucore.wire.claim.claim_specs import ClaimSpec, DeviceChoice, DeviceClass, DeviceRequest
from gpucore.wire.claim.devices import SliceDevice
from gpucore.wire.claim.resource_slices import ResourceSlice
from gpucore.wire.names import CLAIM_DRIVER

Key = tuple[str, str]
"""Namespace and name."""
DeviceMap = Mapping[GpuIndex, SliceDevice]
"""The devices of a node by GPU, in the order of its slice."""


class ClaimOffers(msgspec.Struct, frozen=True):
    """Devices of the nodes, and the classes that select them.

    Attributes:
        devices: those of this driver; a node without any offers no GPUs as claims.
        extended_class: name of the class that serves pods which request exclusive GPUs as an
            extended resource; empty for none.
    """

    devices: Mapping[NodeName, DeviceMap] = {}
    classes: Mapping[str, DeviceClass] = {}
    extended_class: str = ""

    def exclusive(self, count: int) -> ClaimSpec:
        """The claim that kube-scheduler makes for ``count`` exclusive GPUs."""
        choice = DeviceChoice(self.extended_class, count)
        return ClaimSpec((DeviceRequest("container-0-request-0", (choice,)),))


class ClaimSpecs(msgspec.Struct, frozen=True):
    """What the claims and the templates of a cluster request."""

    claims: Mapping[Key, ClaimSpec] = {}
    templates: Mapping[Key, ClaimSpec] = {}


def offers_of(
    slices: Iterable[ResourceSlice], classes: Mapping[str, DeviceClass], resource: str
) -> ClaimOffers:
    """The offers of slices.

    Args:
        resource: name of the extended resource for exclusive GPUs.
    """
    devices: dict[NodeName, tuple[SliceDevice, ...]] = {}
    for found in slices:
        if found.driver == CLAIM_DRIVER and found.pool == found.node:
            node = NodeName(found.node)
            devices[node] = (*devices.get(node, ()), *found.devices)
    return ClaimOffers(
        {node: by_index(each) for node, each in devices.items()},
        classes,
        serving_class(classes, resource),
    )


def serving_class(classes: Mapping[str, DeviceClass], resource: str) -> str:
    """Name of the class that serves pods with an extended resource; empty for none."""
    return min((c.name for c in classes.values() if c.extended_resource == resource), default="")


def exclusive_class(
    node_infos: Iterable[NodeInfo], classes: Mapping[str, DeviceClass], resource: str
) -> str:
    """The class by which pods get exclusive GPUs as an extended resource; empty for none."""
    return serving_class(classes, resource) if only_claims_exclusive(node_infos) else ""


def only_claims_exclusive(node_infos: Iterable[NodeInfo]) -> bool:
    """Only nodes that offer claims have exclusive GPUs: a pod's own scheduler allocates them.

    Kubernetes makes a claim of the extended resource by the DeviceClass that names it.
    """
    shapes = [each.shape for each in node_infos]
    offered = any(shape.offers_gpus for shape in shapes)
    return not offered and any(shape.claims for shape in shapes)


def by_index(devices: tuple[SliceDevice, ...]) -> dict[GpuIndex, SliceDevice]:
    """Devices by the index of their GPU, in the order given."""
    return {GpuIndex(each.index): each for each in devices if each.index >= 0}
