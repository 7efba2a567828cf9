"""The GPU shares of each node, computed with the core's ledger.

The figures therefore equal those of the scheduler extender. The only additional rule is the unit of
a node whose plugin does not publish it: more than 100 units a GPU are taken for MiB, as in the
original (wrong for GPUs of 101 GiB and more, so this project's plugin publishes the unit).
"""

from collections.abc import Collection, Iterable

from gpucore.accounting.claims import holder
from gpucore.accounting.device_info import DeviceInfo, burst_units
from gpucore.accounting.ledger import Ledger
from gpucore.accounting.node_info import NodeInfo, unit_of
from gpucore.model import Allocation, Gpu
from gpucore.units import GIB, MIB, GpuIndex, MemoryUnit, NodeName
from gpucore.wire.names import Names
from gpucore.wire.node.spec import Node
from gpucore.wire.quantity import amount
from gpuinspect.cluster.ledger import ledger_of
from gpuinspect.cluster.snapshots import Arriving, Snapshot
from gpuinspect.errors import MissingObjectError, similar_names
from gpuinspect.queries.views import ClusterView, GpuSummary, NodeSummary, PodSummary


def cluster_view(
    snapshot: Snapshot | Arriving,
    names: Names,
    *,
    only: Collection[str] = (),
    every_pod: bool = True,
) -> ClusterView:
    """The nodes that offer shares, by name; or those named by ``only``, whatever they offer.

    Args:
        every_pod: with all pods; otherwise only with those that need a note.

    Raises:
        MissingObjectError: there is no node of a name.
        WireError, KubeError: as :func:`ledger_of`.
    """
    ledger, known = ledger_of(snapshot, names), list(snapshot.nodes)
    chosen = [each for each in known if _wanted(each, ledger, only)]
    for name in only:
        if all(each.name != name for each in chosen):
            others = similar_names(name, (each.name for each in known))
            raise MissingObjectError(f'nodes "{name}" not found{others}')
    chosen.sort(key=lambda each: each.name)
    return view_of_nodes(ledger, chosen, every_pod=every_pod)


def _wanted(node: Node, ledger: Ledger, only: Collection[str]) -> bool:
    if only:
        return node.name in only
    node_info, names = ledger.node(node.name), ledger.names
    if node_info is not None and node_info.shape.claims:
        return True
    offered = (node.allocatable.get(names.gpu_mem), node.capacity.get(names.gpu_mem))
    return any(amount(text) > 0 for text in offered if text is not None)


def view_of_gpus(ledger: Ledger, nodes: Iterable[Node]) -> ClusterView:
    """The nodes that offer shares, and those with exclusive GPUs alone, by name."""
    infos = ledger.nodes()
    chosen = (
        each
        for each in nodes
        if _wanted(each, ledger, ()) or (each.name in infos and infos[each.name].devices)
    )
    return view_of_nodes(ledger, sorted(chosen, key=lambda each: each.name))


def view_of_nodes(ledger: Ledger, nodes: Iterable[Node], *, every_pod: bool = True) -> ClusterView:
    """These nodes with every amount in one unit: that of the nodes where all agree, else MiB."""
    node_infos = [(node, _node_info(ledger, node.name)) for node in nodes]
    units = {unit_of(node_info) for _, node_info in node_infos if node_info.devices}
    unit = units.pop() if len(units) == 1 else MIB if units else GIB
    chosen = {
        node.name: [each for each in node_info.allocations.values() if every_pod or _noted(each)]
        for node, node_info in node_infos
    }
    names = ledger.names
    return ClusterView(
        tuple(_node(*pair, chosen[pair[0].name], unit=unit, names=names) for pair in node_infos),
        unit,
    )


def _noted(allocation: Allocation) -> bool:
    """A sentence beside the table names the pod."""
    return bool(allocation.pending or allocation.pending_gpus or allocation.faults)


def _node_info(ledger: Ledger, name: NodeName) -> NodeInfo:
    node_info = ledger.node(name)
    return NodeInfo(name) if node_info is None else node_info


def _node(
    node: Node,
    node_info: NodeInfo,
    allocations: Iterable[Allocation],
    *,
    unit: MemoryUnit,
    names: Names,
) -> NodeSummary:
    own = unit_of(node_info) if node_info.devices else unit
    scale = own.mib // unit.mib
    gpus = [_gpu(device, device.gpu, scale) for device in node_info.devices.values() if device.gpu]
    lost = sum(device.used for device in node_info.devices.values() if device.gpu is None)
    held = (each for each in allocations if is_shown(each, node_info))
    pods = (_pod(allocation, node_info, scale) for allocation in held)
    return NodeSummary(
        name=node.name,
        address=node.address,
        gpus=tuple(gpus),
        total=_total(node, node_info, names) * scale,
        used=sum(device.used for device in gpus) + (lost + node_info.pending) * scale,
        pending=node_info.pending * scale,
        pods=tuple(sorted(pods, key=lambda pod: (pod.namespace, pod.name, pod.uid))),
        ready=node.ready,
        cordoned=node.unschedulable,
        explicit=node_info.unit is not None,
        unit=str(own),
        driver=node_info.inventory.driver if node_info.inventory else "",
    )


def _total(node: Node, node_info: NodeInfo, names: Names) -> int:
    """Units of the GPUs; of a node with an original plugin, what kubelet can allocate."""
    if node_info.unit is None:
        return amount(node.allocatable.get(names.gpu_mem, "0"))
    return node_info.total_units


def _gpu(device: DeviceInfo, gpu: Gpu, scale: int) -> GpuSummary:
    return GpuSummary(
        index=device.index,
        total=device.total * scale,
        used=(max(device.used, device.total) if device.taken else device.used) * scale,
        core=device.core_used,
        exclusive=device.taken,
        healthy=device.healthy,
        mode="mig" if gpu.mig else gpu.isolation.value,
        model=gpu.model,
        uuid=gpu.uuid,
        memory_mib=gpu.memory_mib,
    )


def is_shown(allocation: Allocation, node_info: NodeInfo) -> bool:
    """False for a pod whose extended resource is allocated by a claim: the claim is shown.

    A pod from before the node offered claims may still hold GPUs itself.
    """
    devices = node_info.devices.values()
    return not node_info.by_claim(allocation) or any(
        allocation.uid in device.holders for device in devices
    )


def _pod(allocation: Allocation, node_info: NodeInfo, scale: int) -> PodSummary:
    uid, name = holder(allocation)
    return PodSummary(
        uid=uid,
        namespace=allocation.namespace,
        name=name,
        claim="" if allocation.users is None else allocation.name,
        gpus={index: units * scale for index, units in _held(allocation, node_info).items()},
        limits={index: units * scale for index, units in _limits(allocation, node_info).items()},
        core=allocation.placement.core,
        group=_exclusive(allocation, node_info),
        pending=node_info.shape.counted(allocation.pending, allocation.unit) * scale,
        state=allocation.state.value,
        faults=allocation.faults,
        pending_gpus=allocation.pending_gpus,
    )


def _exclusive(allocation: Allocation, node_info: NodeInfo) -> tuple[GpuIndex, ...]:
    """GPUs that the pod requests as such, and those that its share has to itself."""
    alone = allocation.exclusive
    return tuple(_held(allocation, node_info)) if alone else allocation.placement.group


def _limits(allocation: Allocation, node_info: NodeInfo) -> dict[GpuIndex, int]:
    """Memory limits above the pod's share, on GPUs whose memory the driver limits."""
    if not allocation.burst:
        return {}
    held = _held(allocation, node_info)
    burst = node_info.shape.counted(allocation.burst, allocation.unit)
    gpus = {index: node_info.devices[index] for index in held}
    found = {
        index: burst_units(burst, held[index], len(held), device.total)
        for index, device in gpus.items()
        if device.gpu and device.gpu.isolation.uses_driver
    }
    return {index: units for index, units in found.items() if units > held[index]}


def _held(allocation: Allocation, node_info: NodeInfo) -> dict[GpuIndex, int]:
    placement, devices = allocation.placement, node_info.devices
    named = {*placement.mem, *placement.core, *placement.group}
    held = {}
    for index in named if len(named) < 2 else devices:  # several are in the order of the node
        hold = devices[index].holders.get(allocation.uid)
        if hold is not None:
            held[index] = devices[index].total if hold.exclusive else hold.mem
    return held
