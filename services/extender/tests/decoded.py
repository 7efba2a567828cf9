"""Nodes and pods as an informer hands them over, and a state that knows them."""

import json
from typing import Any

from objects import Object, node, placed, pod

from gpucore.model import Placement, PodRequest
from gpucore.scheduling.grouping import Rules
from gpucore.scheduling.policy import place
from gpucore.units import NodeName
from gpucore.wire.names import DEFAULT_NAMES
from gpucore.wire.node.spec import Node, decode_node
from gpucore.wire.pod.spec import Pod, decode_pod
from gpuextender.scheduling.cache import NodeCache
from gpuextender.scheduling.filter import BestNodes
from gpuextender.state import State


def a_node(name: str, *units: int) -> Node:
    """A node with an inventory."""
    return decode_node(json.dumps(node(name, *units, unit="GiB")).encode())


def a_pod(item: Object) -> Pod:
    """A pod."""
    return decode_pod(json.dumps(item).encode())


def encoded(item: Object) -> bytes:
    """An object as the API server sends it."""
    return json.dumps(item).encode()


def state_of(*nodes: Node, **options: Any) -> State:
    """A state that knows these nodes."""
    state = State(DEFAULT_NAMES, **options)
    state.relist_nodes(nodes)
    return state


def evicting(state: State, priority: int) -> None:
    """A node ``d`` with 8 and 4 free units, and a pod of 6 that is nominated for it."""
    state.node_changed(a_node("d", 8, 8))
    state.pod_changed(a_pod(placed(pod("x", 4, uid="x"), "d", 1)))
    item = pod("evicting", 6, uid="evicting", priority=priority)
    item["status"]["nominatedNodeName"] = "d"
    state.pod_changed(a_pod(item))


def assume(state: State, waiting: Pod, node: str, *, now_ns: int = 0) -> Placement:
    """Reserve GPU memory of a node for a waiting pod."""
    node_info = state.ledger.node(NodeName(node))
    pod_request = state.saw(waiting).pod_request
    assert node_info is not None
    assert isinstance(pod_request, PodRequest)
    placement = place(node_info, pod_request)
    assert isinstance(placement, Placement)
    state.assume(waiting, placement, now_ns=now_ns)
    return placement


def best_of(state: State, cache: NodeCache, limit: int = 0, policy: str = "binpack") -> BestNodes:
    """The choice of candidates; by default all nodes that fit."""
    return BestNodes(state, cache, rules=Rules(policy), limit=limit)


class Touched:
    """Collects the names of nodes whose kept verdicts are dropped."""

    def __init__(self) -> None:
        self._names: set[NodeName] = set()

    def __call__(self, name: NodeName) -> None:
        self._names.add(name)

    def taken(self) -> set[str]:
        """Names since the last look."""
        names, self._names = self._names, set()
        return set(names)
