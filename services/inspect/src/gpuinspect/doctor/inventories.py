"""Checks of the GPU data that nodes publish."""

from collections.abc import Iterator
from typing import Final

from gpucore.accounting.node_info import GIB_GPUS_END, NodeInfo, unit_of
from gpucore.explain.sentences import memory_words
from gpucore.units import MIB
from gpucore.wire.configmaps import decode_config_map
from gpucore.wire.errors import WireError
from gpucore.wire.names import INVENTORY, UNHEALTHY_KEY
from gpucore.wire.node.inventories import (
    decode_inventory,
    kept_by_plugin,
    unhealthy_indexes,
    unhealthy_node,
)
from gpucore.wire.node.spec import Node
from gpucore.wire.quantity import amount
from gpuinspect.cluster.extenders import extenders, reads_config_maps
from gpuinspect.doctor.checks import Checklist, Level
from gpuinspect.doctor.evidence import Evidence, called

MESSAGE_BYTES: Final = 4 << 20  # kubelet takes no larger message of gRPC
DEVICE_BYTES: Final = 60  # bytes that one unit takes in it

check = Checklist()


def _explicit(evidence: Evidence) -> Iterator[tuple[Node, NodeInfo]]:
    return ((n, node_info) for n, node_info in evidence.sharing if node_info.unit is not None)


def _offered_units(node_info: NodeInfo) -> int:
    """Memory units that the device plugin advertises, oversold ones included."""
    gpus = node_info.inventory.gpus if node_info.inventory else ()
    return sum(gpu.units for gpu in gpus) * node_info.shape.oversell


@check(
    "inventory-published",
    Level.WARN,
    "nodes publish their GPUs",
    do="replace the original device plugin by gpushare's; until then sizes of GPUs are estimates",
)
def _published(evidence: Evidence) -> Iterator[str]:
    for node, _ in evidence.sharing:
        if INVENTORY not in node.annotations:
            yield f"{node.name} does not publish its GPUs"


@check(
    "inventory-readable",
    Level.FAIL,
    "inventories of nodes can be parsed",
    do="restart the node's device plugin, which writes the annotation again; on a node with MPS "
    "that ends the pods that use it",
)
def _readable(evidence: Evidence) -> Iterator[str]:
    for node in evidence.snapshot.nodes:
        text = node.annotations.get(INVENTORY)
        try:
            _ = None if text is None else decode_inventory(text)
        except WireError as error:
            yield f"{node.name}: {error}"


@check(
    "inventory-agrees",
    Level.FAIL,
    "inventory and kubelet agree on the amount of memory",
    do="restart the node's device plugin, so that it registers again; on a node with MPS that ends "
    "the pods that use it",
)
def _total_agrees(evidence: Evidence) -> Iterator[str]:
    for node, node_info in _explicit(evidence):
        published = _offered_units(node_info)
        offered = amount(node.capacity.get(evidence.names.gpu_mem, "0"))
        if node_info.shape.offers_shares and published != offered:
            total = memory_words(published, node_info.unit)
            yield f"{node.name}: GPUs of {total} in total, kubelet has {offered}"


@check(
    "gpu-count-agrees",
    Level.FAIL,
    "inventory and node status agree on the number of GPUs",
    do="check that the device plugin may patch nodes/status",
)
def _count_agrees(evidence: Evidence) -> Iterator[str]:
    for node, node_info in _explicit(evidence):
        text = node.capacity.get(evidence.names.gpu_count)
        gpus = len(node_info.inventory.gpus) if node_info.inventory else 0
        if text is not None and amount(text) != gpus:
            yield f"{node.name}: {gpus} GPUs, but its {evidence.names.gpu_count} is {text}"


@check(
    "unit-published",
    Level.WARN,
    "every node with large GPUs publishes its memory unit",
    do="run gpushare's device plugin on the node, which publishes its unit",
)
def _unit_unpublished(evidence: Evidence) -> Iterator[str]:
    for node, node_info in evidence.sharing:
        largest = node_info.shape.largest_gpu
        if node_info.unit is None and largest > GIB_GPUS_END:
            yield f"{node.name}: GPUs of {largest} units, assumed to be MiB"


@check(
    "one-unit",
    Level.WARN,
    "all nodes use one memory unit",
    do="set one memoryUnit for all nodes; a pod's request has another size on each",
)
def _one_unit(evidence: Evidence) -> Iterator[str]:
    units = {unit_of(node_info) for _, node_info in evidence.sharing}
    if len(units) > 1:
        yield "nodes use " + ", ".join(str(unit) for unit in sorted(units))


@check(
    "message-size",
    Level.FAIL,
    "the device list fits kubelet's message limit",
    do="set a larger memoryUnit",
)
def _message_size(evidence: Evidence) -> Iterator[str]:
    for node, node_info in _explicit(evidence):
        units = _offered_units(node_info)
        if units * DEVICE_BYTES > MESSAGE_BYTES:
            coarser = "256MiB" if node_info.unit == MIB else "GiB"
            ids = f"{units} device IDs, one for each {node_info.unit}"
            yield f"{node.name}: {ids}, are too many for kubelet; use {coarser}"


@check(
    "gpus-healthy",
    Level.WARN,
    "all GPUs are healthy",
    do="read the node's events for the reason; the GPU is offered again once it works, after some "
    "XIDs only after a reset",
)
def _healthy(evidence: Evidence) -> Iterator[str]:
    for node, node_info in evidence.offering:
        sick = [
            str(device.index)
            for device in node_info.devices.values()
            if device.gpu and not device.healthy
        ]
        if sick:
            yield f"{node.name}: GPU {', '.join(sick)}"


@check(
    "no-promise-beyond-memory",
    Level.FAIL,
    "no GPU advertises more than its memory",
    do="restart the node's device plugin (on a node with MPS that ends the pods that use it); "
    "report a bug if this remains",
)
def _promises(evidence: Evidence) -> Iterator[str]:
    for node, node_info in _explicit(evidence):
        for gpu in node_info.inventory.gpus if node_info.inventory else ():
            promised = gpu.units * unit_of(node_info).mib
            if gpu.memory_mib and promised > gpu.allocatable_mib:
                yield f"{node.name} GPU {gpu.index}: {promised} MiB of {gpu.allocatable_mib}"


@check(
    "driver-known",
    Level.WARN,
    "nodes publish their driver version",
    do="run nvidia-smi on the node",
)
def _driver_known(evidence: Evidence) -> Iterator[str]:
    for node, node_info in _explicit(evidence):
        if node_info.inventory and not node_info.inventory.driver:
            yield f"{node.name} publishes no driver version"


@check(
    "one-driver",
    Level.WARN,
    "all nodes have one driver version",
    do="finish the driver upgrade",
)
def _one_driver(evidence: Evidence) -> Iterator[str]:
    texts = {
        node_info.inventory.driver for _, node_info in _explicit(evidence) if node_info.inventory
    }
    if len(texts - {""}) > 1:
        yield "nodes have drivers " + ", ".join(sorted(texts - {""}))


@check(
    "node-labels",
    Level.WARN,
    "labels that configure a node are valid",
    do="correct the listed label",
)
def _labels_sane(evidence: Evidence) -> Iterator[str]:
    for node, node_info in evidence.sharing:
        yield from (f"{node.name}: {fault}" for fault in node_info.shape.faults)


@check(
    "unhealthy-config-maps",
    Level.WARN,
    "config maps of unhealthy GPUs name existing GPUs, and the extender reads them",
    do="correct or delete the config map; the extender reads it with the chart value "
    "unhealthyConfigMaps=true",
    needs=("ConfigMap",),
)
def _unhealthy_maps(evidence: Evidence) -> Iterator[str]:
    for config_map in map(decode_config_map, evidence.snapshot.all("ConfigMap")):
        name = unhealthy_node(config_map.name)
        if name is None:
            continue
        node_info = evidence.ledger.node(name)
        if node_info is None or not node_info.present:
            yield f"{config_map.name} names a node that does not exist"
            continue
        published = unhealthy_indexes(config_map.data.get(UNHEALTHY_KEY, ""))
        for index in sorted(published - node_info.devices.keys()):
            yield f"{config_map.name} names GPU {index}, which the node does not have"
        if published & node_info.devices.keys() and not kept_by_plugin(config_map.labels):
            yield from (
                f"{config_map.name} is not read by extender {called(pod)}: it places pods there"
                for pod, raw in extenders(evidence.snapshot)
                if not reads_config_maps(raw)
            )
