"""The extender learns which pods usually come, and no request waits for it."""

import json
from typing import Any

import pytest
from decoded import a_node, a_pod, best_of, state_of
from objects import pod

from gpucore.accounting.node_info import NodeInfo
from gpucore.scheduling.best_nodes import node_rating
from gpucore.scheduling.grouping import BY_LINKS
from gpucore.units import NodeName
from gpucore.wire.pods import Pod, decode_pod, pod_request_of
from gpucore.workload.history import FEWEST_PODS
from gpucore.workload.pod_mix import PodKind
from gpuextender.podmix import LEARN_SECONDS, MixLearner
from gpuextender.scheduling.cache import NodeCache
from gpuextender.state import State

A, B = NodeName("a"), NodeName("b")


class Learning:
    """A learner over a cache, with a clock that the test sets."""

    def __init__(self, state: State) -> None:
        self.state, self.cache, self.seconds = state, NodeCache(state.ledger), 0.0
        state.add_event_handler(self.cache.node_changed)
        state.host_changed = self.cache.host_changed
        self.changed: list[NodeName] = []
        self.learner = MixLearner(
            state, self._changed, self.cache.refresh, now=lambda: self.seconds
        )

    def _changed(self, name: NodeName) -> None:
        self.changed.append(name)
        self.cache.host_changed(name)


def work(name: str, mem: int, *, cpu: str = "2", selector: str = "") -> Pod:
    """A pod with a share and CPU."""
    item: dict[str, Any] = pod(name, mem)
    item["spec"]["containers"][0]["resources"]["limits"]["cpu"] = cpu
    if selector:
        item["spec"]["nodeSelector"] = {"gpu": selector}
    return a_pod(item)


def came(state: State, count: int, mem: int, **more: Any) -> None:
    """This number of pods."""
    for number in range(count):
        state.pod_changed(work(f"p{mem}-{number}", mem, **more))


def host(state: State, name: NodeName) -> Any:
    """What the node has left beside GPUs."""
    node_info = state.ledger.node(name)
    assert node_info is not None
    return node_info.host


async def test_the_guess_stands_until_enough_pods_came() -> None:
    """Then every node compares by the pods, with its own CPU and GPU model."""
    learning = Learning(state := state_of(a_node("a", 16), a_node("b", 16)))
    came(state, FEWEST_PODS - 1, 8)
    assert not await learning.learner.learn()
    assert host(state, A) is None
    came(state, 1, 8)
    assert await learning.learner.learn()
    assert learning.changed == [A, B]
    room = host(state, A)
    assert (room.model, room.units, room.cpu_milli) == ("T4", 16, 8000)
    assert room.mix.kinds == {PodKind(mem=8, cpu_milli=2000): pytest.approx(FEWEST_PODS)}


async def test_pods_on_a_node_take_its_cpu() -> None:
    """Pods without GPUs too; a node that comes later learns at once."""
    learning = Learning(state := state_of(a_node("a", 16)))
    came(state, FEWEST_PODS, 8)
    await learning.learner.learn()
    bound = json.loads(json.dumps(pod("cpu")))
    bound["spec"] |= {"nodeName": "a"}
    bound["spec"]["containers"][0]["resources"]["requests"] = {"cpu": "3"}
    state.pod_changed(decode_pod(json.dumps(bound).encode()))
    state.node_changed(a_node("b", 16))
    assert (host(state, A).cpu_milli, host(state, B).cpu_milli) == (5000, 8000)


async def test_ratings_follow_the_mix_and_the_cpu_that_is_left() -> None:
    """Kept ratings are those of the mix in use, and are computed again when CPU is taken."""
    learning = Learning(state := state_of(a_node("a", 16, 16), a_node("b", 16, 16)))
    request = pod_request_of(work("new", 4), state.names)
    assert request is not None

    def rated(node: NodeInfo) -> tuple[float, ...]:
        return node_rating(node, request, "fragmentation", BY_LINKS)

    async def kept() -> list[tuple[float, ...]]:
        return await learning.cache.results(("rating", request), [A, B], rated, unknown=())

    guessed = await kept()
    came(state, FEWEST_PODS, 16, cpu="1")
    await learning.learner.learn()
    learned = await kept()
    assert learned != guessed
    bound = json.loads(json.dumps(pod("cpu")))
    bound["spec"] |= {"nodeName": "a"}
    bound["spec"]["containers"][0]["resources"]["requests"] = {"cpu": "6"}
    state.pod_changed(decode_pod(json.dumps(bound).encode()))
    now = await kept()
    assert now[0] != learned[0]
    assert now[1] == learned[1]


async def test_ratings_are_computed_before_a_request_needs_them() -> None:
    """After a mix is learned the next request finds every rating that is kept."""
    learning = Learning(state := state_of(*(a_node(f"n{number}", 16) for number in range(40))))
    names = list(state.ledger.nodes())
    request = pod_request_of(work("new", 4), state.names)
    assert request is not None
    computed: list[NodeName] = []

    def rated(node: NodeInfo) -> tuple[float, ...]:
        computed.append(node.name)
        return node_rating(node, request, "fragmentation", BY_LINKS)

    await learning.cache.results(("rating", request), names, rated, unknown=())
    came(state, FEWEST_PODS, 16)
    await learning.learner.learn()
    assert sorted(computed) == sorted(2 * names)
    await learning.cache.results(("rating", request), names, rated, unknown=())
    assert len(computed) == 2 * len(names)


async def test_what_depends_on_gpus_alone_is_kept_when_cpu_changes() -> None:
    """Ratings by fullness and reasons of refusals are not computed again."""
    learning = Learning(state := state_of(a_node("a", 16)))
    calls: list[NodeName] = []
    for _ in range(2):
        await learning.cache.results("free", [A], lambda node: calls.append(node.name), unknown=0)
        learning.cache.host_changed(A)
    assert calls == [A]
    assert await best_of(state, learning.cache).share_ratings(_plain(state), [A]) == [0.25]


def _plain(state: State) -> Any:
    return pod_request_of(work("plain", 4), state.names)


async def test_it_learns_after_many_pods_or_a_minute() -> None:
    """Not with every pod: a quarter more, or time."""
    learning = Learning(state := state_of(a_node("a", 16)))
    assert not learning.learner.due()
    came(state, 40, 8)
    assert learning.learner.due()
    await learning.learner.learn()
    came(state, 9, 4)
    assert not learning.learner.due()
    came(state, 10, 4)
    assert learning.learner.due()
    await learning.learner.learn()
    learning.seconds += LEARN_SECONDS
    assert learning.learner.due()


async def test_ended_pods_count_and_a_pod_counts_once() -> None:
    """Whatever phase a pod is in when the extender first sees it."""
    state = state_of(a_node("a", 16))
    item = pod("done", 8)
    item["status"] = {"phase": "Succeeded"}
    for _ in range(2):
        state.pod_changed(a_pod(item))
    state.pod_gone(a_pod(item))
    state.pod_changed(a_pod(pod("none")))
    assert len(state.mix.history) == 1
