"""Prioritize, decided on a state without a socket."""

import json
from typing import Any

import pytest
from decoded import a_node, a_pod, state_of
from objects import Object, node, placed, pod
from schedulercalls import Calls

from gpucore.scheduling.policy import MAX_SCORE


def calls_of(*nodes: tuple[str, int], **options: Any) -> Calls:
    """Calls on nodes of one GPU with so many units."""
    return Calls(state_of(*(a_node(name, units) for name, units in nodes)), **options)


@pytest.mark.parametrize(
    "body",
    [
        b"nothing",
        b'{"Pod": {"metadata": 1}, "NodeNames": ["a"]}',
        b'{"Pod": {}, "NodeNames": [1]}',
        b'{"Pod": {"metadata": {"name": "p"}}, "Nodes": {"items": [1]}}',
    ],
)
async def test_a_request_that_cannot_be_read_scores_no_node(body: bytes) -> None:
    """kube-scheduler goes on with the scores of its own plugins."""
    assert await calls_of(("a", 8)).prioritize.prioritize(body) == b"[]"


@pytest.mark.parametrize("item", [None, pod("p")])
async def test_without_a_request_for_gpus_every_node_scores_0(item: Object | None) -> None:
    """The nodes keep the order that the other plugins give them."""
    body = json.dumps({"Pod": item, "NodeNames": ["a", "x"]}).encode()
    found = json.loads(await calls_of(("a", 8)).prioritize.prioritize(body))
    assert found == [{"Host": "a", "Score": 0}, {"Host": "x", "Score": 0}]


async def test_without_nodes_there_is_no_score() -> None:
    """Neither names nor objects were sent."""
    body = json.dumps({"Pod": pod("p", 1)}).encode()
    assert await calls_of(("a", 8)).prioritize.prioritize(body) == b"[]"


async def test_full_nodes_are_scored_by_what_is_known_of_them() -> None:
    """A known node by its pods, a template by its object, one without an inventory not at all."""
    calls = calls_of(("half", 16), ("free", 16))
    calls.state.pod_changed(a_pod(placed(pod("holder", 8), "half", 0)))
    nodes = [node(name, 8, unit="GiB") for name in ("half", "template", "free")]
    scores = await calls.scores_full(pod("p", 8), *nodes, node("plain", 8))
    assert scores == {"half": 10, "template": 10, "free": 5, "plain": 0}


async def test_names_win_over_objects() -> None:
    """Nodes that are sent by name are not judged by objects sent along."""
    calls = calls_of(("a", 16))
    body = {"Pod": pod("p", 8), "NodeNames": ["a", "t"], "Nodes": {"items": [node("t", 8)]}}
    body["Nodes"]["items"][0] = node("t", 8, unit="GiB")
    found = json.loads(await calls.prioritize.prioritize(json.dumps(body).encode()))
    assert found == [{"Host": "a", "Score": 5}, {"Host": "t", "Score": 0}]


async def test_a_pod_without_gpus_gives_no_template_a_score() -> None:
    """Its request is compared with nothing."""
    calls = calls_of()
    assert await calls.scores_full(pod("p"), node("t", 8, unit="GiB")) == {"t": 0}


@pytest.mark.parametrize(
    ("policy", "expected"),
    [("binpack", {"huge": 0, "small": 5, "x": 0}), ("spread", {"huge": 10, "small": 5, "x": 0})],
)
async def test_nodes_without_ratings_of_all_amounts_are_scored_exactly(
    policy: str, expected: dict[str, int]
) -> None:
    """A GPU of very many units between others: each node has the score of its own."""
    calls = calls_of(("huge", 600), ("small", 8), policy=policy)
    assert await calls.scores(pod("p", 4), ["huge", "small", "x"]) == expected
    assert await calls.scores(pod("q", 4), ["x", "small", "huge"]) == expected


@pytest.mark.parametrize(
    ("policy", "expected"),
    [("binpack", {"a": 10, "b": 5, "x": 0}), ("spread", {"a": 0, "b": 5, "x": 0})],
)
async def test_requests_of_compute_are_scored_by_the_policy(
    policy: str, expected: dict[str, int]
) -> None:
    """They are scored one node at a time; an unknown node scores 0."""
    calls = calls_of(("a", 8), ("b", 16), policy=policy)
    assert await calls.scores(pod("p", 8, core=10), ["a", "b", "x"]) == expected


@pytest.mark.parametrize("core", [0, 10])
@pytest.mark.parametrize(("policy", "other"), [("binpack", "spread"), ("spread", "binpack")])
async def test_the_policy_of_a_pod_goes_before_the_default(
    policy: str, other: str, core: int
) -> None:
    """Scores of one policy are never given to a pod of the other, nor those of another amount."""
    calls = calls_of(("a", 8), ("b", 16), policy=policy)
    small, large = pod("p", 4, core=core), pod("q", 8, core=core)
    chosen = pod("r", 4, core=core, annotations={"gpushare/policy": other})
    best = {"binpack": "a", "spread": "b"}
    for item, expected in ((small, policy), (chosen, other), (small, policy), (large, policy)):
        scores = await calls.scores(item, "ab")
        assert max(scores, key=scores.__getitem__) == best[expected]
    assert scores != await calls.scores(small, "ab")


async def test_the_places_of_a_gang_have_the_best_score() -> None:
    """Its pods go to the nodes that are reserved for them, whatever the policy prefers."""
    calls = calls_of(("a", 16), ("b", 16), ("c", 6))
    labels = {"gpu-topology": "g", "gpu-topology-replica": "2"}
    items = [pod(name, 8, uid=name, labels=labels) for name in ("p", "q")]
    for item in items:
        calls.state.pod_changed(a_pod(item))
    placed_on = await calls.filter(items[0], ["a", "b", "c"])
    places = json.loads(bytes(placed_on.node_names))
    expected = {name: MAX_SCORE if name in places else 0 for name in "abc"}
    assert await calls.scores(items[0], ["a", "b", "c"]) == expected
    assert 0 < len(places) < 3
