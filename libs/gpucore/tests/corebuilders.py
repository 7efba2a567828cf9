"""Nodes, pods and ledgers in one line each, as the API server would show them."""

from collections.abc import Mapping, Sequence

import msgspec

from gpucore.accounting.ledger import Ledger
from gpucore.model import Allocation, FitError, Gpu, Inventory, Placement, PodRequest
from gpucore.scheduling.policy import place
from gpucore.units import GIB, GpuIndex, GpuUuid, MemoryUnit, NodeName, PodUid
from gpucore.wire import names as wire_names
from gpucore.wire.names import DEFAULT_NAMES
from gpucore.wire.node.inventories import encode_inventory
from gpucore.wire.node.spec import Node
from gpucore.wire.pod.placements import annotations_of
from gpucore.wire.pod.spec import Container, Pod
from gpucore.wire.whole_requests import pod_request_of

NAMES = DEFAULT_NAMES


def make_gpus(*units: int, unit: MemoryUnit | None = GIB) -> Inventory:
    """GPUs of these sizes."""
    gpus = tuple(Gpu(GpuIndex(i), GpuUuid(f"GPU-{i}"), size) for i, size in enumerate(units))
    return Inventory(gpus=gpus, unit=unit)


def legacy_node(name: str, total: int, count: int, **labels: str) -> Node:
    """A node with an original plugin: a total and a count."""
    capacity = {NAMES.gpu_mem: str(total), NAMES.gpu_count: str(count)}
    return Node(NodeName(name), labels=labels, capacity=capacity, allocatable=capacity)


def share_node(
    name: str, inventory: Inventory, *, whole: bool = False, labels: Mapping[str, str] | None = None
) -> Node:
    """A node with our plugin, which offers shares and perhaps exclusive GPUs."""
    capacity = {NAMES.gpu_mem: str(sum(gpu.units for gpu in inventory.gpus))}
    if whole:
        capacity[NAMES.gpu] = str(len(inventory.gpus))
    return Node(
        NodeName(name),
        labels=dict(labels or {}),
        annotations={wire_names.INVENTORY: encode_inventory(inventory)},
        capacity=capacity,
        allocatable=capacity,
    )


def limits(mem: int = 0, core: int = 0, gpus: int = 0) -> dict[str, str]:
    """The limits of a container that requests so much."""
    requested = {NAMES.gpu_mem: mem, NAMES.gpu_core: core, NAMES.gpu: gpus}
    return {name: str(amount) for name, amount in requested.items() if amount}


def pod(
    name: str,
    mem: int | Sequence[int] = 0,
    *,
    core: int = 0,
    gpus: int = 0,
    node: str = "",
    phase: str = "Pending",
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    terminating: bool = False,
) -> Pod:
    """A pod whose containers request ``mem`` units each; the first requests the rest too."""
    amounts = [mem] if isinstance(mem, int) else list(mem)
    requests = [limits(amounts[0], core, gpus), *(limits(amount) for amount in amounts[1:])]
    return Pod(
        uid=PodUid(f"uid-{name}"),
        namespace="default",
        name=name,
        node=NodeName(node),
        phase=phase,
        terminating=terminating,
        labels=dict(labels or {}),
        annotations=dict(annotations or {}),
        containers=tuple(Container(name=f"c{i}", limits=ask) for i, ask in enumerate(requests)),
    )


def pod_request(of: Pod) -> PodRequest:
    """What a pod that requests something requests."""
    found = pod_request_of(of, NAMES)
    assert found is not None
    return found


def bound(
    of: Pod, placement: Placement, inventory: Inventory, *, assigned: bool = False, at: int = 1
) -> Pod:
    """The pod once the Binding with its annotations has been written."""
    texts = annotations_of(
        placement, pod_request(of), NAMES, inventory=inventory, assume_time=at, assigned=assigned
    )
    return msgspec.structs.replace(of, node=placement.node, annotations=of.annotations | texts)


def ledger(*objects: Node | Pod) -> Ledger:
    """Books that these objects give."""
    book = Ledger(NAMES)
    for thing in objects:
        if isinstance(thing, Node):
            book.node_changed(thing)
        else:
            book.pod_changed(thing)
    return book


def on_node(book: Ledger, name: str, pending: Pod, policy: str = "") -> Placement | FitError:
    """Where ``pending`` would sit on a node."""
    node_info = book.node(NodeName(name))
    assert node_info is not None
    return place(node_info, pod_request(pending), policy)


def assumed(book: Ledger, name: str, pending: Pod, *, at: int = 1) -> Allocation:
    """Reserve a place on a node for a pod that fits there."""
    placement = on_node(book, name, pending)
    assert isinstance(placement, Placement)
    return book.assume(pending, placement, now_ns=at)


def used(book: Ledger, name: str) -> list[int]:
    """Units held on each GPU of a node."""
    node_info = book.node(NodeName(name))
    assert node_info is not None
    return [gpu.used for gpu in node_info.devices.values()]
