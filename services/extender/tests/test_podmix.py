"""The extender learns which pods usually come, and no request waits for it."""

import asyncio
import json
from typing import Any

import pytest
from decoded import a_node, a_pod, best_of, state_of
from objects import node, pod
from structlog.testing import capture_logs
from test_claim_counting import CLAIM
from test_claim_mix import pod as claim_pod

from gpucore.accounting.claim_offers import Key
from gpucore.accounting.node_info import NodeInfo
from gpucore.claims.arrivals import ClaimArrivals, ClaimSources
from gpucore.scheduling.best_nodes import node_rating
from gpucore.scheduling.grouping import BY_LINKS
from gpucore.units import NodeName
from gpucore.wire import constraints
from gpucore.wire.claim.resource_claims import ResourceClaim
from gpucore.wire.names import INVENTORY
from gpucore.wire.node.spec import decode_node
from gpucore.wire.pod.spec import Pod, decode_pod
from gpucore.wire.whole_requests import pod_request_of
from gpucore.workload.history import FEWEST_PODS
from gpucore.workload.pod_mix import PodKind, PodMix
from gpuextender import metrics
from gpuextender.podmix import LEARN_SECONDS, LOOK_SECONDS, NODES_AT_ONCE, MixLearner
from gpuextender.scheduling.cache import NodeCache
from gpuextender.state import State
from gpukube.testing.clock import FakeClock

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
    return constraints.decode_pod(json.dumps(item).encode())


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


async def test_it_is_due_at_the_minute_and_at_a_quarter_more() -> None:
    """Not before, whenever it learned last."""
    learning = Learning(state := state_of(a_node("a", 16)))
    learning.seconds = 1000.0
    came(state, 40, 8)
    await learning.learner.learn()
    came(state, 9, 4)
    learning.seconds += LEARN_SECONDS - 1
    assert not learning.learner.due()
    came(state, 1, 2)
    assert learning.learner.due()
    await learning.learner.learn()
    learning.seconds += LEARN_SECONDS - 1
    assert not learning.learner.due()
    learning.seconds += 1
    assert learning.learner.due()


async def test_it_looks_every_second_and_learns_when_it_is_due(clock: FakeClock) -> None:
    """By the job in the background."""
    learning = Learning(state := state_of(a_node("a", 16)))
    job = asyncio.create_task(learning.learner.run())
    await asyncio.sleep(LOOK_SECONDS + 0.1)
    came(state, FEWEST_PODS, 8)
    assert host(state, A) is None
    await asyncio.sleep(LOOK_SECONDS)
    assert host(state, A).mix.kinds == {PodKind(mem=8, cpu_milli=2000): FEWEST_PODS}
    came(state, 2, 16)
    await asyncio.sleep(10 * LOOK_SECONDS)
    assert not learning.learner.due()
    assert metrics.MIX_PODS._value.get() == FEWEST_PODS
    job.cancel()


async def test_the_metrics_and_the_log_have_the_mix_in_use() -> None:
    """Pods each time it learns, kinds and changes where the mix changed."""
    learning = Learning(state := state_of(a_node("a", 16)))
    before = metrics.MIX_CHANGES._value.get()
    metrics.MIX_KINDS.set(0)
    came(state, FEWEST_PODS, 8)
    came(state, FEWEST_PODS, 4)
    with capture_logs() as logs:
        assert await learning.learner.learn()
        assert not await learning.learner.learn()
        came(state, 1, 2)
        assert not await learning.learner.learn()
    assert logs == [
        {
            "event": "mix of pods learned",
            "log_level": "info",
            "pods": 2 * FEWEST_PODS,
            "kinds": 2,
        }
    ]
    assert metrics.MIX_PODS._value.get() == 2 * FEWEST_PODS + 1
    assert metrics.MIX_KINDS._value.get() == 2
    assert metrics.MIX_CHANGES._value.get() == before + 1


def two_models() -> State:
    """A node of the model T4 and one of A10, with the model as a label."""
    nodes = []
    for name, model in (("a", "T4"), ("b", "A10")):
        item = node(name, 16, unit="GiB")
        item["metadata"]["labels"] |= {"gpu": model}
        annotations = item["metadata"]["annotations"]
        annotations[INVENTORY] = annotations[INVENTORY].replace("T4", model)
        nodes.append(decode_node(json.dumps(item).encode()))
    return state_of(*nodes)


async def test_node_selectors_become_gpu_models() -> None:
    """Those of the nodes that the labels of the pods allow."""
    learning = Learning(state := two_models())
    came(state, FEWEST_PODS, 8, selector="A10")
    await learning.learner.learn()
    [kind] = host(state, A).mix.kinds
    assert kind == PodKind(mem=8, cpu_milli=2000, models=("A10",))


async def test_selectors_that_a_tenant_invents_leave_those_of_others() -> None:
    """More than are compared with the nodes, and before all others by their text."""
    learning = Learning(state := two_models())
    came(state, 20 * FEWEST_PODS, 8, selector="A10")
    for number in range(65):
        item = pod(f"t{number}", 8, namespace="tenant")
        item["spec"]["nodeSelector"] = {"a": f"{number}"}
        state.pod_changed(constraints.decode_pod(json.dumps(item).encode()))
    await learning.learner.learn()
    kinds = host(state, A).mix.kinds
    assert PodKind(mem=8, cpu_milli=2000, models=("A10",)) in kinds


async def test_pods_with_claims_are_counted_before_it_learns() -> None:
    """In the unit in which the nodes count GPU memory."""
    state = state_of(decode_node(json.dumps(node("a", 16384, unit="MiB")).encode()))
    claims: dict[Key, ResourceClaim] = {(CLAIM.namespace, CLAIM.name): CLAIM}
    arrivals = ClaimArrivals(state.mix.history, ClaimSources(claims, {}), state.names)
    learner = MixLearner(
        state, lambda _: None, NodeCache(state.ledger).refresh, with_claims=arrivals
    )
    for number in range(FEWEST_PODS):
        arrivals.pod_changed(a_pod(claim_pod(f"p{number}", resourceClaimName="own")))
    assert await learner.learn()
    [kind] = host(state, A).mix.kinds
    assert kind == PodKind(mem=8192, core=50, cpu_milli=3000, memory_mib=2048)


async def test_a_new_mix_goes_to_sixteen_nodes_at_a_time(clock: FakeClock) -> None:
    """What is kept of these is computed before the next ones follow, and no time is lost."""
    state = state_of(*(a_node(f"n{number:02}", 16) for number in range(2 * NODES_AT_ONCE + 1)))
    changed: list[NodeName] = []
    refreshed: list[int] = []

    async def refresh() -> None:
        refreshed.append(len(changed))

    came(state, FEWEST_PODS, 8)
    began = asyncio.get_running_loop().time()
    await MixLearner(state, changed.append, refresh).learn()
    assert refreshed == [NODES_AT_ONCE, 2 * NODES_AT_ONCE, 2 * NODES_AT_ONCE + 1]
    assert asyncio.get_running_loop().time() - began < 0.5
    assert all(host(state, name).mix is state.mix.mix for name in changed)


async def test_a_mix_is_in_use_once_every_node_has_it() -> None:
    """While it goes to the nodes, the one before counts; the guess counts as one."""
    state = state_of(*(a_node(f"n{number:02}", 16) for number in range(2 * NODES_AT_ONCE + 1)))
    used: list[PodMix | None] = []

    async def refresh() -> None:
        assert used == [None]

    learner = MixLearner(state, lambda _: None, refresh, on_use=used.append)
    await learner.learn()
    came(state, FEWEST_PODS, 8)
    await learner.learn()
    assert used == [None, state.mix.mix]
    assert used[-1] is not None
    assert all(host(state, name).mix is used[-1] for name in state.ledger.nodes())


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
