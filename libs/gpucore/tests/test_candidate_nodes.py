"""What pods request of each node, event by event, is what a fresh count gives."""

from collections.abc import Sequence

import msgspec
import pytest
from corebuilders import NAMES, make_gpus, pod, share_node
from hypothesis import given, settings
from hypothesis import strategies as st

from gpucore.kubescheduler.candidate_nodes import CandidateNodes
from gpucore.model.constraints import PodConstraints, Resources
from gpucore.units import NodeName, PodUid
from gpucore.wire.errors import WireError
from gpucore.wire.lists import (
    decode_pod_event_with_constraints,
    decode_pods_with_constraints,
)
from gpucore.wire.node.spec import Node
from gpucore.wire.pod.spec import Pod

NODES = (NodeName("n1"), NodeName("n2"))
STEPS = ("reserve", "bind", "finish", "release", "delete", "relist")


def node(name: NodeName, **allocatable: str) -> Node:
    """A ready node."""
    item = share_node(name, make_gpus(16))
    offered = {**item.allocatable, **allocatable}
    return msgspec.structs.replace(item, ready=True, allocatable=offered)


def requests(cpu: int) -> Resources:
    """Of a pod."""
    return (("cpu", cpu),)


def held(uid: PodUid, cpu: int, on: NodeName, phase: str = "Running") -> Pod:
    """A bound pod."""
    constraints = PodConstraints(requests=requests(cpu))
    item = pod(uid, 1, node=on, phase=phase)
    return msgspec.structs.replace(item, uid=uid, constraints=constraints)


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(
    steps=st.lists(
        st.tuples(
            st.sampled_from(STEPS),
            st.sampled_from("abc"),
            st.sampled_from(NODES),
            st.integers(1, 3),
        ),
        max_size=30,
    )
)
def test_sums_are_those_of_the_pods_that_count(
    steps: Sequence[tuple[str, str, NodeName, int]],
) -> None:
    """Whatever happens in whatever order; a binding counts before a reservation."""
    found = CandidateNodes(NAMES)
    for name in NODES:
        found.node_changed(node(name))
    counted: dict[PodUid, tuple[NodeName, int, bool]] = {}
    for step, letter, name, cpu in steps:
        uid = PodUid(letter)
        bound = counted.get(uid, (name, 0, False))[2]
        if step == "reserve":
            found.reserve(uid, name, requests(cpu))
            if not bound:
                counted[uid] = name, cpu, False
        elif step == "bind":
            found.pod_changed(held(uid, cpu, name))
            counted[uid] = name, cpu, True
        elif step == "release":
            found.release(uid)
            if not bound:
                counted.pop(uid, None)
        elif step == "relist":
            found.relist_pods(())
            counted = {uid: one for uid, one in counted.items() if not one[2]}
        else:
            gone = held(uid, cpu, name, phase="Succeeded")
            found.pod_gone(uid) if step == "delete" else found.pod_changed(gone)
            counted.pop(uid, None)
        for each in NODES:
            mine = [cpu for home, cpu, _ in counted.values() if home == each]
            candidate = found.node(each)
            assert candidate is not None
            assert (candidate.pods, candidate.requested.get("cpu", 0)) == (len(mine), sum(mine))


def test_only_changes_that_a_filter_reads_are_reported() -> None:
    """A heartbeat changes nothing; a cordon, a pod and the end of the node do."""
    found, changes = CandidateNodes(NAMES), list[NodeName]()
    found.on_change = changes.append
    (name, _) = NODES
    found.node_changed(node(name))
    found.node_changed(msgspec.structs.replace(node(name), resource_version="2"))
    assert changes == [name]
    found.node_changed(msgspec.structs.replace(node(name), unschedulable=True))
    found.pod_changed(held(PodUid("a"), 1, name))
    found.pod_changed(held(PodUid("a"), 1, name))
    found.node_gone(name)
    assert changes == [name] * 4
    assert found.node(name) is None


@pytest.mark.parametrize(
    ("offered", "cpu", "over"),
    [({"cpu": "1"}, 1000, False), ({"cpu": "1"}, 1001, True), ({"pods": "0"}, 1, True)],
)
def test_a_node_is_oversubscribed_when_more_is_requested_than_it_offers(
    offered: dict[str, str], cpu: int, *, over: bool
) -> None:
    """By any resource or by the number of pods; so is a node that is gone."""
    found = CandidateNodes(NAMES)
    found.node_changed(node(NODES[0], **offered))
    found.reserve(PodUid("a"), NODES[0], requests(cpu))
    assert found.oversubscribed(NODES[0]) is over
    assert found.oversubscribed(NODES[1])


def test_pods_are_read_with_their_constraints() -> None:
    """From a list and from a watch; what is no pod is an error of one kind."""
    limits = {"cpu": "1500m", "aliyun.com/gpu-mem": "2"}
    item = {
        "metadata": {"name": "p", "uid": "u", "resourceVersion": "7"},
        "spec": {"nodeSelector": {"a": "b"}, "containers": [{"resources": {"limits": limits}}]},
    }
    wanted = PodConstraints(
        node_selector=(("a", "b"),), requests=(("aliyun.com/gpu-mem", 2), ("cpu", 1500))
    )
    page = decode_pods_with_constraints(msgspec.json.encode({"metadata": {}, "items": [item]}))
    assert [one.constraints for one in page.items] == [wanted]
    line = msgspec.json.encode({"type": "ADDED", "object": item})
    event = decode_pod_event_with_constraints(line)
    assert event.item is not None
    assert (event.item.constraints, event.resource_version) == (wanted, "7")
    for broken in (b"[]", b'{"metadata": {}, "items": [1]}', b"{"):
        with pytest.raises(WireError):
            decode_pods_with_constraints(broken)
