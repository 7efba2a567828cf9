"""The legacy ConfigMap of unhealthy GPUs, from its informer to the answer of filter."""

import json
from typing import Any

from decoded import Touched, a_node, a_pod, best_of, state_of
from objects import pod

from gpucore.scheduling.grouping import Rules
from gpucore.units import NodeName
from gpucore.wire.configmaps import ConfigMap
from gpucore.wire.names import MANAGED_BY, PLUGIN
from gpuextender.informers import ConfigMapHandler, NodeHandler, PodHandler
from gpuextender.scheduling.cache import NodeCache
from gpuextender.scheduling.filter import Filter
from gpuextender.scheduling.gangs import Gangs
from gpuextender.scheduling.requeue import Requeue
from gpuextender.state import State
from gpukube.testing.scripted import ScriptedClient


def config_map(node: str, text: str, **labels: str) -> ConfigMap:
    """The list of unhealthy GPUs of one node."""
    return ConfigMap(f"unhealthy-gpu-{node}", labels, {"gpus": text}, "1")


def unhealthy(state: State, node: str = "n") -> list[int]:
    """Indexes of GPUs that take no pod."""
    node_info = state.ledger.node(NodeName(node))
    assert node_info is not None
    return [index for index, device in node_info.devices.items() if not device.open]


class Verdicts:
    """The filter of a state, which keeps what nodes refuse until they change."""

    def __init__(self, state: State) -> None:
        gangs, cache = Gangs(state, Rules()), NodeCache(state.ledger)
        requeue = Requeue(state, ScriptedClient(), gangs)
        self._filter = Filter(state, gangs, cache, requeue, best_of(state, cache))
        state.add_event_handler(cache.node_changed)

    async def of(self, units: int, node: str = "n") -> str:
        """Why a pod with this request is refused; empty where it fits."""
        body = {"Pod": pod("p", units), "NodeNames": [node]}
        found = await self._filter.filter(json.dumps(body).encode())
        assert not found.error
        return found.failed_nodes.get(node, "")


async def test_a_config_map_changes_verdicts_that_were_kept() -> None:
    """A refusal that was kept gets the new reason, and is gone when the ConfigMap is deleted."""
    state = state_of(a_node("n", 8, 8))
    sink, verdicts = ConfigMapHandler(state), Verdicts(state)
    assert "unhealthy" not in await verdicts.of(9)
    assert await verdicts.of(8) == ""
    sink.on_update(config_map("n", "0,1"), b"")
    assert "GPU 0 is unhealthy" in await verdicts.of(9)
    assert "GPU 1 is unhealthy" in await verdicts.of(8)
    sink.on_update(config_map("n", "1"), b"")
    assert await verdicts.of(8) == ""
    assert "GPU 0 is unhealthy" not in await verdicts.of(9)
    assert "GPU 1 is unhealthy" in await verdicts.of(9)
    sink.on_delete(config_map("n", "1"))
    assert "unhealthy" not in await verdicts.of(9)


def test_an_unhealthy_gpu_touches_its_node_alone() -> None:
    """Verdicts of other nodes are kept."""
    state, touched = state_of(a_node("a", 8), a_node("b", 8)), Touched()
    state.add_event_handler(touched)
    touched.taken()
    state.unhealthy_changed(NodeName("a"), "0")
    assert touched.taken() == {"a"}
    assert unhealthy(state, "a") == [0]
    state.unhealthy_changed(NodeName("a"), "")
    assert touched.taken() == {"a"}
    assert unhealthy(state, "a") == []


def test_a_list_without_a_config_map_makes_its_gpus_healthy() -> None:
    """A ConfigMap that was deleted while the watch was away is noticed by its absence."""
    state = state_of(a_node("n", 8, 8), a_node("m", 8))
    sink = ConfigMapHandler(state)
    sink.on_replace([config_map("n", "1"), config_map("m", "0")])
    assert (unhealthy(state), unhealthy(state, "m")) == ([1], [0])
    sink.on_replace([config_map("m", "0")])
    assert (unhealthy(state), unhealthy(state, "m")) == ([], [0])
    sink.on_update(config_map("n", "0"), b"")
    sink.on_replace([])
    assert (unhealthy(state), unhealthy(state, "m")) == ([], [])


def test_a_config_map_that_was_deleted_is_not_looked_for_in_lists() -> None:
    """Only what came since the last list can have vanished."""
    state = state_of(a_node("n", 8))
    sink = ConfigMapHandler(state)
    sink.on_update(config_map("n", "0"), b"")
    sink.on_delete(config_map("n", "0"))
    state.unhealthy_changed(NodeName("n"), "0")
    sink.on_replace([])
    assert unhealthy(state) == [0]


def test_other_config_maps_are_not_read() -> None:
    """The name selects which ones count; one without the key, or of our plugin, lists no GPU."""
    state = state_of(a_node("n", 8))
    sink = ConfigMapHandler(state)
    other = ConfigMap("kube-root-ca.crt", {}, {"gpus": "0"}, "1")
    sink.on_replace([other])
    sink.on_update(other, b"")
    sink.on_delete(other)
    sink.on_update(ConfigMap("unhealthy-gpu-n", {}, {}, "1"), b"")
    sink.on_update(config_map("n", "0", **{MANAGED_BY: PLUGIN}), b"")
    assert unhealthy(state) == []


def test_nodes_and_pods_reach_the_state() -> None:
    """Lists, updates and deletions of both informers."""
    state: Any = state_of()
    nodes, pods = NodeHandler(state), PodHandler(state)
    nodes.on_replace([a_node("a", 8)])
    nodes.on_update(a_node("b", 8), b"")
    assert set(state.ledger.nodes()) == {"a", "b"}
    nodes.on_delete(a_node("a", 8))
    assert set(state.ledger.nodes()) == {"b"}
    first, second = a_pod(pod("p", 1)), a_pod(pod("q", 1))
    pods.on_replace([first])
    pods.on_update(second, b"")
    pods.on_delete(first)
    assert [one.pod.name for one in state.waiting()] == ["q"]
