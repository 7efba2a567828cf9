"""Checks of GPUs that are offered as ResourceClaims: nodes, slices, classes, and old pods."""

from collections.abc import Iterator
from typing import Final

from gpucore.claims.selectors import excludes_driver
from gpucore.units import NodeName
from gpucore.wire.claim.claim_specs import decode_device_class
from gpucore.wire.claim.resource_slices import decode_slice
from gpucore.wire.names import API, API_CLAIMS, CLAIM_DRIVER
from gpucore.wire.node.spec import Node
from gpucore.wire.quantity import amount
from gpuinspect.doctor.checks import Checklist, Level
from gpuinspect.doctor.evidence import Evidence
from gpuinspect.doctor.nodes import minor

OLDEST: Final = (1, 36)  # consumable capacity is on by default

check = Checklist()


def _offering(evidence: Evidence) -> set[NodeName]:
    """Nodes with a ResourceSlice of our driver."""
    found = map(decode_slice, evidence.snapshot.all("ResourceSlice"))
    return {NodeName(each.node) for each in found if each.driver == CLAIM_DRIVER}


def _labelled(evidence: Evidence) -> list[Node]:
    return [node for node in evidence.snapshot.nodes if node.labels.get(API) == API_CLAIMS]


@check(
    "claims-published",
    Level.FAIL,
    "nodes with the label gpushare/api=claims publish a ResourceSlice",
    do="read the log of the device plugin's pod there: it names what keeps it from publishing",
    needs=("ResourceSlice",),
)
def _published(evidence: Evidence) -> Iterator[str]:
    offering = _offering(evidence)
    for node in _labelled(evidence):
        if node.name not in offering:
            yield f"{node.name} has the label, but no ResourceSlice of {CLAIM_DRIVER}"


@check(
    "claims-class",
    Level.FAIL,
    "a DeviceClass selects the GPUs that are offered as claims",
    do="install the chart's DeviceClasses, or create one that selects the driver",
    needs=("ResourceSlice", "DeviceClass"),
)
def _class(evidence: Evidence) -> Iterator[str]:
    if not (_offering(evidence) or _labelled(evidence)):
        return
    classes = map(decode_device_class, evidence.snapshot.all("DeviceClass"))
    named = [each for each in classes if any(CLAIM_DRIVER in text for text in each.selectors)]
    if all(excludes_driver(CLAIM_DRIVER, each.selectors) for each in named):
        yield f"no DeviceClass selects device.driver == '{CLAIM_DRIVER}'"


@check(
    "claims-kubelet",
    Level.FAIL,
    "nodes that offer GPUs as claims run Kubernetes 1.36 or later",
    do="upgrade the node, or enable the feature gate DRAConsumableCapacity everywhere (1.34, 1.35)",
    needs=("ResourceSlice",),
)
def _kubelet(evidence: Evidence) -> Iterator[str]:
    names = _offering(evidence) | {node.name for node in _labelled(evidence)}
    for node in sorted(evidence.snapshot.nodes, key=lambda node: node.name):
        version = minor(node.kubelet) if node.name in names else None
        if version is not None and version < OLDEST:
            yield f"{node.name} runs kubelet {node.kubelet}"


@check(
    "claims-one-api",
    Level.FAIL,
    "no node offers its GPUs to the device plugin and as claims",
    do="restart the device plugin's pod there; it withdraws one of the two",
    needs=("ResourceSlice",),
)
def _one_api(evidence: Evidence) -> Iterator[str]:
    offering = _offering(evidence)
    for node in evidence.snapshot.nodes:
        for resource in (evidence.names.gpu_mem, evidence.names.gpu):
            if node.name in offering and amount(node.allocatable.get(resource, "0")):
                yield f"{node.name} offers {resource} and a ResourceSlice of the same GPUs"
