"""Filter, decided on a state without a socket."""

import asyncio
import json
from typing import Any

import pytest
from decoded import a_node, a_pod, assume, encoded, state_of
from objects import Object, node, placed, pod, whole_node
from schedulercalls import Calls

from gpucore.model import Placement
from gpucore.units import GpuIndex, NodeName, PodUid
from gpucore.wire.constraints import decode_pod as decode_with_constraints
from gpucore.wire.node.spec import decode_node
from gpucore.wire.pod_groups import PodGroup
from gpuextender.scheduling.messages import FilterResult
from gpuextender.state import State


def fits(found: FilterResult) -> list[str]:
    """Names of the nodes that fit."""
    names: list[str] = json.loads(bytes(found.node_names))
    return names


def waits(calls: Calls, name: str, mem: int, nominated: str = "", **more: Any) -> Object:
    """A pending pod that the watch has brought; another component may have nominated it."""
    item = pod(name, mem, uid=name, **more)
    item["status"]["nominatedNodeName"] = nominated
    calls.state.pod_changed(a_pod(item))
    return item


async def test_full_nodes_come_back_as_they_were_sent() -> None:
    """Known nodes and templates that fit, in that order; each of the others has its reason."""
    calls = Calls(state_of(a_node("known", 8), a_node("full", 4)))
    template, known = node("template", 8, unit="GiB"), node("known", 8, unit="GiB", sent="so")
    small, plain, full = node("small", 4, unit="GiB"), node("plain", 8), node("full", 4)
    found = await calls.filter_full(pod("p", 8), template, known, small, plain, full)
    assert fits(found) == ["known", "template"]
    assert found.nodes is not None
    assert [json.loads(bytes(one)) for one in found.nodes.items] == [known, template]
    assert found.failed_nodes.keys() == {"small", "plain", "full"}
    assert "8" in found.failed_nodes["small"]
    assert "plain" in found.failed_and_unresolvable_nodes


async def test_a_pod_is_not_refused_by_nodes_that_do_not_exist() -> None:
    """An autoscaler's simulation is no attempt to schedule: nothing is sent back later for it."""
    calls = Calls(state_of(a_node("full", 4)))
    simulated, refused = pod("p", 8, uid="p"), pod("q", 8, uid="q")
    await calls.filter_full(simulated, node("small", 4, unit="GiB"))
    await calls.filter_full(refused, node("small", 4, unit="GiB"), node("full", 4))
    assert not calls.requeue.is_refused(PodUid("p"))
    assert calls.requeue.is_refused(PodUid("q"))


async def test_a_pod_without_gpus_fits_every_full_node() -> None:
    """Templates too."""
    calls = Calls(state_of(a_node("known", 8)))
    found = await calls.filter_full(pod("p"), node("t", 4, unit="GiB"), node("known", 8))
    assert sorted(fits(found)) == ["known", "t"]


@pytest.mark.parametrize(("priority", "expected"), [(9, []), (10, []), (11, ["n"])])
async def test_gpus_of_a_nominated_pod_go_to_higher_priorities_only(
    priority: int, expected: list[str]
) -> None:
    """The reason counts the pods for which they are reserved; preemption may help."""
    calls = Calls(state_of(a_node("n", 16)))
    urgent = waits(calls, "urgent", 16, "n", priority=10)
    found = await calls.filter(waits(calls, "other", 8, priority=priority), ["n", "unknown"])
    assert fits(found) == expected
    assert ("capacity is reserved for 1 pod nominated" in found.failed_nodes.get("n", "")) != bool(
        expected
    )
    assert found.failed_and_unresolvable_nodes.keys() == {"unknown"}
    assert fits(await calls.filter(urgent, ["n"])) == ["n"]


async def test_every_offered_node_is_compared_with_its_own_nominated_pods() -> None:
    """A node that is full keeps its reason, one with enough for both fits, the next is reserved."""
    state = state_of(a_node("full", 16), a_node("large", 16), a_node("n", 8))
    calls = Calls(state)
    state.pod_changed(a_pod(placed(pod("holder", 16), "full", 0)))
    for name in ("full", "large", "n"):
        waits(calls, f"on-{name}", 8, name)
    found = await calls.filter(waits(calls, "other", 8), ["full", "large", "n"])
    assert fits(found) == ["large"]
    reserved = {name for name, text in found.failed_nodes.items() if "is reserved for" in text}
    assert (found.failed_nodes.keys(), reserved) == ({"full", "n"}, {"n"})


async def test_ratings_are_computed_before_a_pod_comes() -> None:
    """The first pod finds them; where all nodes that fit are kept, none are needed."""
    calls = Calls(state_of(a_node("a", 8), a_node("b", 8)), limit=1)
    await calls.best.warm()
    assert len(calls.cache) == 2
    assert len(fits(await calls.filter(pod("p", 3), "ab"))) == 1
    assert len(calls.cache) == 2
    unlimited = Calls(state_of(a_node("a", 8)))
    await unlimited.best.warm()
    assert len(unlimited.cache) == 0


async def test_nodes_are_compared_exactly_where_no_rating_of_all_amounts_exists() -> None:
    """A GPU of very many units has none; a pod with compute has none either."""
    calls = Calls(state_of(a_node("huge", 600), a_node("small", 8)), limit=1)
    assert fits(await calls.filter(pod("p", 4), ["huge", "small"])) == ["small"]
    assert fits(await calls.filter(pod("q", 4, core=10), ["huge", "small"])) == ["small"]
    assert fits(await calls.filter(pod("q", 9, core=10), ["huge", "small"])) == ["huge"]
    calls.state.node_gone(NodeName("small"))
    assert fits(await calls.filter(pod("r", 4), ["huge", "small"])) == ["huge"]


async def test_a_request_of_compute_is_compared_by_its_own_ratings() -> None:
    """Ratings of one request are none of another: the policies of the pods prefer other nodes."""
    calls = Calls(state_of(a_node("a", 8), a_node("b", 16)), limit=1)
    packed, spread = pod("p", 4, core=10), pod("q", 4, core=10)
    spread["metadata"]["annotations"] = {"gpushare/policy": "spread"}
    assert fits(await calls.filter(packed, "ab")) == ["a"]
    assert fits(await calls.filter(spread, "ab")) == ["b"]
    assert fits(await calls.filter(packed, "ab")) == ["a"]


async def test_exclusive_gpus_fit_where_so_many_are_free() -> None:
    """Just enough is enough; a node that is not known has none."""
    nodes = [
        decode_node(encoded(whole_node(name, gpus))) for name, gpus in (("one", 1), ("two", 2))
    ]
    calls = Calls(state_of(*nodes))
    found = await calls.filter(pod("p", gpus=1), ["one", "two", "x"])
    assert (fits(found), found.failed_nodes.keys()) == (["one", "two"], {"x"})
    found = await calls.filter(pod("q", gpus=2), ["one", "two", "x"])
    assert (fits(found), found.failed_nodes.keys()) == (["two"], {"one", "x"})


async def test_mig_instances_are_not_the_gpus_of_one_container() -> None:
    """Two containers with one instance each fit where a container with two does not."""
    item = node("n", 8, 8, unit="GiB")
    inventory = json.loads(item["metadata"]["annotations"]["gpushare/inventory"])
    for gpu in inventory["gpus"]:
        gpu["mode"] = "mig"
    item["metadata"]["annotations"]["gpushare/inventory"] = json.dumps(inventory)
    item["status"]["capacity"]["aliyun.com/gpu"] = "2"
    calls = Calls(state_of(decode_node(encoded(item))))
    assert fits(await calls.filter(pod("p", gpus=2), ["n"])) == []
    two = pod("q", gpus=1)
    two["spec"]["containers"] += [{**two["spec"]["containers"][0], "name": "second"}]
    assert fits(await calls.filter(two, ["n"])) == ["n"]


async def test_a_pod_with_preferences_keeps_all_full_nodes() -> None:
    """kube-scheduler weighs them, and the watch need not have brought the pod yet."""
    calls = Calls(state_of(a_node("a", 8), a_node("b", 8)), limit=1)
    item = pod("p", 4)
    assert len(fits(await calls.filter_full(item, node("a"), node("b")))) == 1
    spread = {"maxSkew": 1, "whenUnsatisfiable": "ScheduleAnyway"}
    item["spec"]["topologySpreadConstraints"] = [spread]
    assert fits(await calls.filter_full(item, node("a"), node("b"))) == ["a", "b"]


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b"nothing", "cannot decode ExtenderArgs"),
        (b'{"Pod": null, "NodeNames": ["n"]}', "arg or pod is nil"),
        (b'{"Pod": {"metadata": {"name": "p"}}}', "cannot get node names"),
    ],
)
async def test_a_call_without_an_answer_gets_the_reason(body: bytes, expected: str) -> None:
    """The original's words for what is missing; kube-scheduler shows them in its event."""
    found = await Calls(state_of(a_node("n", 8))).filter_body(body)
    assert found.error.startswith(expected)
    assert "None" not in found.error


async def test_a_nominated_pod_gets_its_node_alone() -> None:
    """Its place is reserved there. Where the node is not offered, the reservation ends."""
    calls = Calls(state_of(a_node("a", 8), a_node("b", 8)))
    item = waits(calls, "p", 8)
    calls.state.nominate(a_pod(item), Placement(NodeName("b"), mem={GpuIndex(0): 8}), now_ns=1)
    assert fits(await calls.filter(item, "ab")) == ["b"]
    assert fits(await calls.filter(item, "b")) == ["b"]
    assert calls.state.ledger.nomination(PodUid("p")) is not None
    assert fits(await calls.filter(item, "a")) == ["a"]
    assert calls.state.ledger.nomination(PodUid("p")) is None


async def test_the_next_pod_is_judged_once_the_first_has_its_gpus() -> None:
    """kube-scheduler binds one pod while it filters the next; the same pod again waits for none."""
    calls = Calls(state_of(a_node("n", 8)))
    calls.expected_bind(seconds=3600)
    first = pod("p", 8, uid="p")
    assert fits(await calls.filter(first, "n")) == ["n"]
    assert fits(await calls.filter(first, "n")) == ["n"]
    following = asyncio.create_task(calls.filter(pod("q", 8), "n"))
    for _ in range(5):
        await asyncio.sleep(0)
    assert not following.done()
    assume(calls.state, a_pod(first), "n")
    assert fits(await following) == []


async def test_a_pod_of_a_gang_is_refused_with_what_its_gang_lacks() -> None:
    """It is remembered, as every refused pod is; one with a request that is wrong is not."""
    calls = Calls(state_of(a_node("n", 8)))
    labels = {"gpu-topology": "g", "gpu-topology-replica": "2"}
    found = await calls.filter(waits(calls, "p", 4, labels=labels), "n")
    assert found.failed_nodes.keys() == {"n"}
    assert "waits for 1 of its 2 pods" in found.failed_nodes["n"]
    assert calls.requeue.is_refused(PodUid("p"))
    wrong = waits(calls, "w", 4, labels={"aliyun.com/gpu-count": "none"})
    assert fits(await calls.filter(wrong, "n")) == []
    assert not calls.requeue.is_refused(PodUid("w"))


async def test_the_pods_of_a_group_do_not_wait_for_binds_of_each_other() -> None:
    """kube-scheduler binds them after the last filter call of their cycle."""
    calls = Calls(state_of(a_node("a", 8), a_node("b", 8)))
    calls.expected_bind(seconds=3600)
    calls.state.gangs.groups.on_update(PodGroup("default", "g", 2))
    items = [_of_group(name) for name in ("p", "q")]
    for item in items:
        calls.state.pod_changed(a_pod(item))
    found = [fits(await calls.filter(item, "ab")) for item in items]
    assert sorted(found) == [["a"], ["b"]]


def _of_group(name: str) -> Object:
    item = pod(name, 8, uid=name)
    item["spec"]["schedulingGroup"] = {"podGroupName": "g"}
    return item


@pytest.mark.parametrize("offered", [["n", "m"], ["n"]])
async def test_a_pod_whose_bind_has_an_unknown_outcome_fits_where_it_is_reserved(
    offered: list[str],
) -> None:
    """Its own reservation does not count against it, and the same node is bound again."""
    state = state_of(a_node("n", 16), a_node("m", 16))
    calls, item = Calls(state), pod("p", 16, uid="p")
    assume(state, a_pod(item), "n")
    assert fits(await calls.filter(item, offered)) == ["n"]
    assert fits(await calls.filter(pod("other", 16, uid="other"), ["n"])) == []


async def test_a_reservation_of_a_bind_stands_while_its_node_is_not_offered() -> None:
    """The bind may have been written; other nodes are judged as ever."""
    state = state_of(a_node("n", 16), a_node("m", 16))
    calls, item = Calls(state), pod("p", 16, uid="p")
    assume(state, a_pod(item), "n")
    assert fits(await calls.filter(item, ["m"])) == ["m"]
    assert state.ledger.allocation(PodUid("p")) is not None


def nominate(state: State, name: str, mem: int, node_name: str, priority: int) -> None:
    """The extender nominates a pod that waits."""
    item = a_pod(pod(name, mem, uid=name, priority=priority))
    state.pod_changed(item)
    state.nominate(item, Placement(NodeName(node_name), mem={GpuIndex(0): mem}), now_ns=1)


@pytest.mark.parametrize(("priority", "expected"), [(5, []), (6, ["n"])])
async def test_a_place_of_a_nominated_pod_goes_to_a_pod_of_higher_priority(
    priority: int, expected: list[str]
) -> None:
    """Of as many nominated pods as are needed, where no offered node fits as it is.

    The pod is none that the extender nominates: its constraints were not read.
    """
    state = state_of(a_node("m", 4), a_node("n", 16), a_node("far", 16))
    calls = Calls(state)
    nominate(state, "small", 4, "n", 5)
    nominate(state, "large", 12, "n", 5)
    nominate(state, "elsewhere", 16, "far", 0)
    found = await calls.filter(waits(calls, "p", 12, priority=priority), ["m", "n"])
    assert fits(found) == expected
    assert ("n" in found.failed_nodes) != bool(expected)
    nominated = {"small", "elsewhere"} | (set() if expected else {"large"})
    assert state.ledger.nominations().keys() == nominated


async def test_a_nominated_pod_keeps_its_place_where_another_node_fits() -> None:
    """Whatever its priority; nor does it give way where that is no help."""
    state = state_of(a_node("m", 12), a_node("n", 16))
    calls = Calls(state)
    nominate(state, "low", 12, "n", 0)
    assert fits(await calls.filter(waits(calls, "p", 12, priority=9), ["m", "n"])) == ["m"]
    assert fits(await calls.filter(waits(calls, "q", 17, priority=9), ["m", "n"])) == []
    assert state.ledger.nominations().keys() == {"low"}


async def test_no_place_is_given_up_where_other_nominated_pods_keep_the_gpus() -> None:
    """Those that another component nominated keep their GPUs, so the place would help nobody."""
    state = state_of(a_node("n", 16))
    calls = Calls(state)
    nominate(state, "low", 8, "n", 0)
    waits(calls, "urgent", 8, "n", priority=10)
    assert fits(await calls.filter(waits(calls, "p", 12, priority=9), ["n"])) == []
    assert state.ledger.nominations().keys() == {"low"}


async def test_a_pod_that_the_extender_nominates_gets_no_place_before_its_round() -> None:
    """Nothing is reserved for it in filter, so that another pod could take the place first."""
    state = state_of(a_node("n", 16))
    calls = Calls(state)
    nominate(state, "low", 16, "n", 0)
    item = pod("p", 16, uid="p", priority=9)
    state.pod_changed(decode_with_constraints(encoded(item)))
    assert fits(await calls.filter(item, ["n"])) == []
    assert state.ledger.nominations().keys() == {"low"}
