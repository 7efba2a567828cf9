"""Pods that are nominated for a node come before others of their priority or a lower one."""

from collections.abc import Sequence

import pytest
from corebuilders import ledger, make_gpus, pod, pod_request, share_node
from hypothesis import given, settings
from hypothesis import strategies as st

from gpucore.accounting.node_info import NodeInfo
from gpucore.model import Allocation, AllocationState, FitError, Placement
from gpucore.scheduling.fit import fit
from gpucore.scheduling.nominated import beside_nominated, node_beside, refusal_beside
from gpucore.scheduling.pending_pods import NominatedPod, before
from gpucore.scheduling.policy import place
from gpucore.units import GpuIndex, NodeName, PodUid


def nominee(name: str, mem: int, priority: int = 0) -> NominatedPod:
    """A nominated pod."""
    return NominatedPod(PodUid(name), name, pod_request(pod(name, mem)), priority)


def node(*held: int) -> NodeInfo:
    """A node with two GPUs of 16 units, with pods on them one after the other."""
    node_info = ledger(share_node("n", make_gpus(16, 16))).node(NodeName("n"))
    assert node_info is not None
    books = node_info.copy()
    for number, mem in enumerate(held):
        found = place(books, pod_request(pod(f"h{number}", mem)))
        if not isinstance(found, FitError):
            books.put(Allocation(PodUid(f"h{number}"), "", "", AllocationState.BOUND, found))
    return books


def test_a_pod_gives_way_to_its_own_priority_and_higher_ones() -> None:
    """It never gives way to itself."""
    pods = [nominee("low", 1, 1), nominee("same", 1, 5), nominee("high", 1, 9)]
    found = before([*pods, nominee("me", 1, 5)], PodUid("me"), 5)
    assert [one.name for one in found] == ["same", "high"]


def test_nominated_pods_are_entered_on_the_node_that_a_plan_has_changed() -> None:
    """Of a node without changes they are entered on the state in the ledger."""
    book = ledger(*(share_node(name, make_gpus(16)) for name in "abc"))
    a, b, c = map(NodeName, "abc")
    changed = {name: book.nodes()[name].copy() for name in (a, c)}
    for name, node_info in changed.items():
        on_gpu = Placement(name, {GpuIndex(0): 3})
        node_info.put(Allocation(PodUid("h"), "", "h", AllocationState.RESERVED, on_gpu))
    found = beside_nominated(book, changed, {a: [nominee("n", 4)], b: [nominee("m", 5)]})
    assert {name: one.used_units for name, one in found.items()} == {a: 7, b: 5, c: 3}


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(
    held=st.lists(st.integers(1, 16), max_size=4),
    nominated=st.lists(st.integers(1, 16), max_size=3),
    mem=st.integers(1, 16),
)
def test_what_is_given_never_takes_the_room_of_a_nominated_pod(
    held: Sequence[int], nominated: Sequence[int], mem: int
) -> None:
    """If all nominated pods fit now, they still do after the other pod was placed."""
    node_info, requests = node(*held), pod_request(pod("p", mem))
    pods = [nominee(f"n{number}", amount) for number, amount in enumerate(nominated)]
    refusal = refusal_beside(node_info, requests, pods)
    if fit(node_info, requests) is not None:
        assert refusal is not None
    books = node_info.copy()
    for one in pods:
        found = place(books, one.pod_request)
        if isinstance(found, FitError):
            return  # nothing is promised before the victims have ended
        books.put(Allocation(one.uid, "", "", AllocationState.RESERVED, found))
    assert (refusal is None) == (fit(books, requests) is None)


@settings(max_examples=200, deadline=None)
@given(
    held=st.lists(st.integers(1, 16), max_size=4),
    nominated=st.lists(st.integers(1, 16), max_size=3),
    binding=st.lists(st.sampled_from(["h0", "h1", "h2", "h3"]), unique=True, max_size=3),
    mem=st.integers(1, 16),
    policy=st.sampled_from(["binpack", "spread"]),
)
def test_a_pod_beside_nominated_ones_takes_no_gpu_that_is_held(
    held: Sequence[int], nominated: Sequence[int], binding: Sequence[str], mem: int, policy: str
) -> None:
    """Some of the nominated pods hold their GPUs already, because their binds are under way."""
    node_info, requests = node(*held), pod_request(pod("p", mem))
    pods = [nominee(f"n{number}", amount) for number, amount in enumerate(nominated)]
    pods += [nominee(name, held[int(name[1:])]) for name in binding if int(name[1:]) < len(held)]
    found = place(node_beside(node_info, pods), requests, policy)
    if not isinstance(found, FitError):
        node_info.put(Allocation(PodUid("p"), "", "", AllocationState.ASSUMED, found))
    assert node_info.overfull == ()
