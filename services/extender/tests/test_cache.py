"""The one cache: results are those of the core, never older than their node, and bounded."""

import asyncio
import json
from collections import Counter
from time import perf_counter

import pytest
from decoded import a_node, a_pod, state_of
from hypothesis import given, settings
from hypothesis import strategies as st
from objects import Object, node, placed, pod
from schedulercalls import Calls

from gpucore.accounting.node_info import NodeInfo
from gpucore.explain.sentences import sentence
from gpucore.model import PodRequest
from gpucore.scheduling.fit import fit
from gpucore.scheduling.plain_shares import UNFIT, UNRATED
from gpucore.scheduling.policy import score
from gpucore.units import NodeName
from gpucore.wire.names import DEFAULT_NAMES
from gpucore.wire.node.spec import decode_node
from gpucore.wire.whole_requests import pod_request_of
from gpuextender.scheduling import cache as cache_module
from gpuextender.scheduling.cache import REQUESTS, NodeCache
from gpuextender.scheduling.messages import MessageError, names_of
from gpuextender.state import State

A, B, C = (NodeName(name) for name in "abc")
LARGE = 600
"""Units of a GPU for which no scores by amount are computed."""


def cache_of(*names: str, limit: int = REQUESTS) -> NodeCache:
    """An empty cache of nodes with one GPU each."""
    return NodeCache(state_of(*(a_node(name, 8) for name in names)).ledger, limit)


class Results:
    """Reads results from a cache: the node's name with how often its result was computed."""

    def __init__(self, cache: NodeCache) -> None:
        self.cache = cache
        self._computed = Counter[str]()

    async def of(self, request: str, *names: str) -> list[str]:
        """Results of nodes for a request."""
        return await self.cache.results(
            request,
            [NodeName(name) for name in names],
            self._compute,
            unknown="?",
        )

    def _compute(self, node_info: NodeInfo) -> str:
        self._computed[node_info.name] += 1
        return f"{node_info.name}{self._computed[node_info.name]}"


async def test_only_a_changed_node_is_computed_again() -> None:
    """The results of other nodes are kept, in whatever order they are requested."""
    results = Results(cache_of("a", "b", "c"))
    assert await results.of("r", "a", "b", "c") == ["a1", "b1", "c1"]
    assert await results.of("r", "c", "b", "a") == ["c1", "b1", "a1"]
    results.cache.node_changed(B)
    assert await results.of("r", "a", "b", "c") == ["a1", "b2", "c1"]


async def test_requests_are_kept_apart() -> None:
    """A result belongs to its request, and a changed node loses the results of all requests."""
    results = Results(cache_of("a"))
    assert [await results.of("r", "a"), await results.of("s", "a")] == [["a1"], ["a2"]]
    results.cache.node_changed(A)
    assert [await results.of("r", "a"), await results.of("s", "a")] == [["a3"], ["a4"]]


async def test_the_least_recently_used_request_is_dropped_first() -> None:
    """A request that is used again is kept, however old it is."""
    results = Results(cache_of("a", limit=2))
    await results.of("old", "a")
    await results.of("unused", "a")
    await results.of("old", "a")
    await results.of("new", "a")
    assert await results.of("old", "a") == ["a1"]
    assert await results.of("unused", "a") == ["a4"]
    assert len(results.cache) == 2


async def test_a_request_for_no_node_drops_no_other() -> None:
    """Where every node fits by its aggregates, filter needs no result of the request."""
    results = Results(cache_of("a", limit=1))
    await results.of("r", "a")
    assert await results.of("s") == []
    assert await results.of("r", "a") == ["a1"]


async def test_names_that_are_no_node_are_not_kept() -> None:
    """A request may name anything: it fills no memory, and the known nodes are answered."""
    results = Results(cache_of("a"))
    assert await results.of("r", "x", "a", "y") == ["?", "a1", "?"]
    assert await results.of("r", "x", "a", "y") == ["?", "a1", "?"]
    assert len(results.cache) == 1


async def test_a_removed_node_leaves_no_result() -> None:
    """Nodes that come and go fill no memory, and a new one has results of its own."""
    state = state_of(a_node("a", 8), a_node("b", 8))
    results = Results(NodeCache(state.ledger))
    state.add_event_handler(results.cache.node_changed)
    assert await results.of("r", "a", "b") == ["a1", "b1"]
    state.node_gone(A)
    assert len(results.cache) == 1
    state.node_changed(a_node("c", 8))
    assert await results.of("r", "a", "b", "c") == ["?", "b1", "c1"]


async def test_ratings_of_a_larger_gpu_leave_those_of_other_nodes() -> None:
    """Amounts that only a later node can take do not fit the nodes before it."""
    state = state_of(a_node("a", 4))
    cache = NodeCache(state.ledger)
    state.add_event_handler(cache.node_changed)
    requested = [A, B, NodeName("x")]

    async def ratings(mem: int) -> list[float]:
        request = pod_request_of(a_pod(pod("p", mem)), DEFAULT_NAMES)
        assert request is not None
        return await cache.share_ratings(request, requested, "binpack")

    assert await ratings(4) == [1.0, UNRATED, UNRATED]
    state.node_changed(a_node("b", 8))
    assert await ratings(4) == [1.0, 0.5, UNRATED]
    assert await ratings(8) == [UNFIT, 1.0, UNRATED]
    assert await ratings(9) == [UNFIT, UNFIT, UNRATED]


async def test_slow_results_leave_room_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other tasks run in between, and a node that changes meanwhile is computed again."""
    monkeypatch.setattr(cache_module, "SLICE_SECONDS", 0.0005)
    names = [NodeName(f"n{number}") for number in range(64)]
    cache, version = cache_of(*names), "old"

    def compute(node_info: NodeInfo) -> str:
        until = perf_counter() + 0.0002
        while perf_counter() < until:
            pass
        return version

    task = asyncio.create_task(cache.results("r", names, compute, unknown="?"))
    await asyncio.sleep(0)
    assert not task.done()
    version = "new"
    for name in names:
        cache.node_changed(name)
    assert set(await task) == {"new"}


async def test_many_different_requests_fill_no_more_memory() -> None:
    """A tenant that creates pods of ever new sizes replaces old results; the answers are right."""
    calls = Calls(state_of(*(a_node(name, 8, 8) for name in "abc")))
    for core in range(1, 2 * REQUESTS):
        item = pod("p", 9, core=core % 100 + 1)
        found = await calls.filter(item, "abc")
        assert "9" in found.failed_nodes["a"]
        assert await calls.scores(item, "abc") == dict.fromkeys("abc", 0)
    assert len(calls.cache) <= REQUESTS * 3


async def test_a_node_that_goes_between_filter_and_prioritize_scores_0() -> None:
    """The scores are of the nodes that exist when prioritize is called."""
    calls = Calls(state_of(a_node("a", 16), a_node("b", 16)))
    item = pod("p", 8)
    found = await calls.filter(item, "ba")
    assert json.loads(bytes(found.node_names)) == ["b", "a"]
    calls.state.node_gone(A)
    calls.state.node_changed(a_node("c", 8))
    assert await calls.scores(item, "bac") == {"b": 5, "a": 0, "c": 10}


async def test_a_change_of_an_unknown_node_changes_no_answer() -> None:
    """A legacy list of unhealthy GPUs may come before its node, or stay after it."""
    calls = Calls(state_of())
    calls.state.node_gone(NodeName("never"))
    assert await calls.scores(pod("p", 1), "xy") == {"x": 0, "y": 0}
    assert len(calls.cache) == 0


@pytest.mark.parametrize("text", [b'"a"', b"[1]", b"{}", b'[["a"]]'])
def test_what_is_no_list_of_names_is_refused(text: bytes) -> None:
    """The error may be sent back to the scheduler."""
    with pytest.raises(MessageError, match="cannot decode NodeNames"):
        names_of(text)  # type: ignore[arg-type]


Change = tuple[str, str, int, int]
"""Kind, node, GPU and units."""
NODES = st.sampled_from("abc")
CHANGES = st.lists(
    st.one_of(
        st.tuples(st.just("bound"), NODES, st.integers(-1, 2), st.integers(1, 9)),
        st.tuples(st.just("gone"), NODES, st.just(0), st.just(0)),
        st.tuples(st.just("resized"), NODES, st.just(0), st.sampled_from((4, 16, LARGE))),
        st.tuples(st.just("unhealthy"), NODES, st.integers(0, 2), st.just(0)),
        st.tuples(st.just("deleted"), NODES, st.just(0), st.just(0)),
    ),
    max_size=8,
)
PODS = st.lists(
    st.tuples(
        st.integers(1, 20),
        st.sampled_from((0, 0, 30)),
        st.sampled_from(("", "", "2")),
        st.sampled_from(("", "", "spread", "fragmentation")),
    ),
    min_size=1,
    max_size=4,
)


@pytest.mark.slow
@given(changes=CHANGES, pods=PODS, policy=st.sampled_from(("binpack", "spread")))
@settings(max_examples=150, deadline=None)
def test_answers_are_those_of_the_core_whatever_changes_in_between(
    changes: list[Change], pods: list[tuple[int, int, str, str]], policy: str
) -> None:
    """Every reason and score equals what the core computes without a cache for the same state."""
    asyncio.run(_compare(changes, pods, policy))


async def _compare(
    changes: list[Change], pods: list[tuple[int, int, str, str]], policy: str
) -> None:
    calls = Calls(state_of(*(a_node(name, 8, 16) for name in "abc")), policy=policy)
    await calls.best.warm()
    items = [_pod(*one) for one in pods]
    for step, change in enumerate([("bound", "a", 0, 1), *changes]):
        _apply(calls.state, f"p{step}", change)
        for item in items:
            await _check(calls, item, policy)


def _pod(mem: int, core: int, gpus: str, policy: str) -> Object:
    labels = {"aliyun.com/gpu-count": gpus} if gpus else {}
    annotations = {"gpushare/policy": policy} if policy else {}
    return pod("pending", mem, core=core, labels=labels, annotations=annotations)


def _apply(state: State, uid: str, change: Change) -> None:
    """Change the cluster as the API server would report it."""
    kind, name, gpu, units = change
    node_name = NodeName(name)
    if kind == "bound":
        item = placed(pod(uid, units, uid=uid), name, max(gpu, 0))
        if gpu < 0:
            item["metadata"]["annotations"] = {}
        state.pod_changed(a_pod(item))
    elif kind == "gone":
        held = [
            key for key, one in state.ledger.allocations().items() if one.placement.node == name
        ]
        for key in held[:1]:
            state.pod_gone(a_pod(placed(pod(key, 1, uid=key), name, 0)))
    elif kind == "resized":
        state.node_changed(decode_node(json.dumps(node(name, 8, units, unit="GiB")).encode()))
    elif kind == "unhealthy":
        state.unhealthy_changed(node_name, str(gpu))
    else:
        state.node_gone(node_name)


async def _check(calls: Calls, item: Object, policy: str) -> None:
    names = ["c", "x", "a", "b"]
    pod_request = pod_request_of(a_pod(item), DEFAULT_NAMES)
    assert isinstance(pod_request, PodRequest)
    node_infos = {name: calls.state.ledger.node(NodeName(name)) for name in names}
    refusals = {name: fit(one, pod_request) for name, one in node_infos.items() if one is not None}
    found = await calls.filter(item, names)
    expected = {name: sentence(refusal) for name, refusal in refusals.items() if refusal}
    failed = dict(found.failed_nodes)
    assert {name: failed.pop(name) for name in expected} == expected
    assert set(failed) == set(names) - refusals.keys()
    final = {name for name, refusal in refusals.items() if refusal and refusal.unresolvable}
    assert set(found.failed_and_unresolvable_nodes) == final | set(failed)
    assert json.loads(bytes(found.node_names)) == [n for n in names if refusals.get(n, 0) is None]
    scores = {
        name: score(one, pod_request, policy) for name, one in node_infos.items() if one is not None
    }
    assert await calls.scores(item, names) == {name: scores.get(name, 0) for name in names}
