"""Moves that free capacity: once they are done, a pod that requests it is admitted."""

from random import Random

import msgspec
import pytest
from corebuilders import bound, ledger, limits, make_gpus, pod, pod_request, share_node

from gpucore.accounting.ledger import Ledger
from gpucore.accounting.node_info import NodeInfo
from gpucore.model import Gpu, Placement
from gpucore.scheduling.device_fit import device_fit_error, exclusive_fit_error
from gpucore.scheduling.fit import fit
from gpucore.simulate.defrag import Goal, MovePlan, defragment
from gpucore.units import GpuIndex, NodeName
from gpucore.wire.node.spec import Node
from gpucore.wire.pod.spec import Pod

NODES = ("a", "b", "c")


def odd_node(random: Random, name: str) -> Node:
    """A node with GPUs that are unhealthy at times, and that may not offer shares or whole GPUs."""
    inventory = make_gpus(*(random.choice((8, 16)) for _ in range(random.randint(1, 3))))
    gpus = tuple(_with_health(gpu, healthy=random.random() > 0.1) for gpu in inventory.gpus)
    serving = random.random() > 0.1
    inventory = msgspec.structs.replace(inventory, gpus=gpus, serving=serving)
    labels = {"ack.node.gpu.max-pod": "2"} if random.random() < 0.3 else {}
    node = share_node(name, inventory, whole=random.random() < 0.7, labels=labels)
    if random.random() < 0.1:
        node = msgspec.structs.replace(node, capacity=limits(gpus=len(gpus)), allocatable={})
    return node


def _with_health(gpu: Gpu, *, healthy: bool) -> Gpu:
    return msgspec.structs.replace(gpu, healthy=healthy)


def odd_pod(random: Random, nodes: dict[str, Node], number: int) -> Pod:
    """A bound pod; of some the GPU is unknown."""
    name = random.choice(sorted(nodes))
    found = pod(f"p{number}", random.choice((2, 4, 8)), node=name)
    index = random.choice((0, 0, 1, 2, None))
    if index is None:
        return found
    gpu, mem = GpuIndex(index), pod_request(found).mem
    placement = Placement(NodeName(name), {gpu: mem}, containers={0: {gpu: mem}})
    return bound(found, placement, make_gpus(16, 16, 16))


def after(book: Ledger, plan: MovePlan) -> NodeInfo:
    """The node once the moves are done."""
    node_info = book.nodes()[plan.node].copy()
    for move in plan.moves:
        node_info.drop(move.allocation.uid)
        if move.to.node == plan.node:
            node_info.put(msgspec.structs.replace(move.allocation, placement=move.to))
    return node_info


@pytest.mark.parametrize("seed", range(300))
def test_what_a_plan_frees_is_given_to_a_pod(seed: int) -> None:
    """Also beside pods on unknown GPUs; the GPUs that the plan names can take it."""
    random = Random(seed)
    nodes = {name: odd_node(random, name) for name in NODES[: random.randint(1, 3)]}
    pods = [odd_pod(random, nodes, number) for number in range(random.randint(0, 9))]
    book = ledger(*nodes.values(), *pods)
    requests = {each.uid: pod_request(each) for each in pods}
    units = random.choice((0, 4, 8, 12, 16))
    goal = Goal(units=units) if units else Goal(gpus=random.randint(1, 2))
    plan = defragment(book.nodes(), requests, goal)
    if plan is None:
        return
    node_info = after(book, plan)
    assert fit(node_info, goal.pod_request) is None
    for device in map(node_info.devices.__getitem__, plan.gpus):
        assert device_fit_error(device, goal.pod_request) is None
        assert units or exclusive_fit_error(device, goal.pod_request) is None
