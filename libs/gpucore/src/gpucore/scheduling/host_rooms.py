"""What nodes have left besides GPUs, and the GPU models that a pod's node labels allow."""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final

from gpucore.accounting.node_info import NodeInfo, unit_of
from gpucore.model import PodRequest
from gpucore.model.constraints import CPU, UNCONSTRAINED, CandidateNode, PodConstraints, Resources
from gpucore.scheduling.device_fit import per_device
from gpucore.steps import Steps
from gpucore.units import GIB, MemoryUnit, NodeName
from gpucore.workload.arrivals import ANY_NODE, Arrival, Models, NodeLabels
from gpucore.workload.pod_mix import UNLIMITED, HostRoom, PodKind, PodMix

MEMORY: Final = "memory"
MOST_SELECTORS: Final = 64
"""Selectors that are compared with the nodes; pods with further ones count as pods without."""
NODES_A_STEP: Final = 100


def arrival_of(
    namespace: str, request: PodRequest, constraints: PodConstraints | None, created: float
) -> Arrival:
    """A pod with GPUs, as it is counted for the mix."""
    mem, core = per_device(request)
    kind = PodKind(
        gpus=request.gpus or request.gpu_count,
        mem=0 if request.gpus else mem,
        core=0 if request.gpus else core,
        cpu_milli=request.cpu_milli,
        memory_mib=request.memory_mib,
    )
    found = constraints or UNCONSTRAINED
    return Arrival(namespace, kind, NodeLabels(found.node_selector, found.affinity), created)


def room_of(node_info: NodeInfo, node: CandidateNode, mix: PodMix) -> HostRoom:
    """What the node has left now; without an amount of CPU or memory it counts as unlimited."""
    cpu, memory = _left(node, CPU), _left(node, MEMORY)
    return HostRoom(
        mix, gpu_model(node_info), node_info.shape.largest_gpu, cpu, max(memory, 0) >> 20
    )


def _left(node: CandidateNode, name: str) -> int:
    offered = node.allocatable.get(name)
    return UNLIMITED << 20 if offered is None else offered - node.requested.get(name, 0)


def gpu_model(node_info: NodeInfo) -> str:
    """The model of the node's GPUs; empty where it is not known."""
    inventory = node_info.inventory
    return inventory.gpus[0].model if inventory is not None and inventory.gpus else ""


def use_mix(
    node_infos: Mapping[NodeName, NodeInfo],
    nodes: Mapping[NodeName, CandidateNode],
    mix: PodMix | None,
) -> None:
    """Let all these nodes compare placements by the mix."""
    for name, node_info in node_infos.items():
        node = nodes.get(name)
        if node is not None:
            node_info.host = None if mix is None else room_of(node_info, node, mix)


def take_from_host(node_info: NodeInfo, requests: Resources) -> None:
    """A pod with these requests is on the node."""
    if node_info.host is not None:
        request = request_on_host(requests)
        node_info.host = node_info.host.after(request.cpu_milli, request.memory_mib)


def give_to_host(node_info: NodeInfo, requests: Resources) -> None:
    """A pod with these requests has left the node."""
    if node_info.host is not None:
        request = request_on_host(requests)
        node_info.host = node_info.host.after(-request.cpu_milli, -request.memory_mib)


def request_on_host(requests: Resources) -> PodRequest:
    """The request of a pod whose GPUs are requested by claims: CPU and memory alone."""
    amounts = dict(requests)
    return PodRequest(
        containers=(),
        cpu_milli=amounts.get(CPU, 0),
        memory_mib=-(-amounts.get(MEMORY, 0) >> 20),
    )


def allowed_models(
    selectors: Iterable[NodeLabels], nodes: Iterable[tuple[NodeInfo, CandidateNode]]
) -> Steps[Models]:
    """The GPU models of the nodes that each selector allows, in steps.

    Args:
        selectors: the first :data:`MOST_SELECTORS` of these count.
    """
    known = [each for each in selectors if each != ANY_NODE][:MOST_SELECTORS]
    found: dict[NodeLabels, set[str]] = {selector: set() for selector in known}
    everything: set[str] = set()
    for number, (node_info, node) in enumerate(nodes):
        if number % NODES_A_STEP == 0:
            yield
        model = gpu_model(node_info)
        everything.add(model)
        for selector, models in found.items():
            if model not in models and _allows(selector, node):
                models.add(model)
    allowed = {
        selector: tuple(sorted(models))
        for selector, models in found.items()
        if models and models != everything
    }
    return lambda selector: allowed.get(selector, ())


def usual_unit(node_infos: Iterable[NodeInfo]) -> Steps[MemoryUnit]:
    """The unit in which most nodes count GPU memory, in steps; GiB without any."""
    found = Counter[MemoryUnit]()
    for number, node_info in enumerate(node_infos):
        if number % NODES_A_STEP == 0:
            yield
        if node_info.devices:
            found[unit_of(node_info)] += 1
    return max(found, key=lambda unit: (found[unit], unit), default=GIB)


def _allows(selector: NodeLabels, node: CandidateNode) -> bool:
    if any(node.labels.get(key) != value for key, value in selector.labels):
        return False
    return selector.terms is None or any(term.matches(node) for term in selector.terms)
