"""Pods that are nominated for a node come before others of their priority or a lower one."""

from collections.abc import Sequence

import msgspec
import pytest
from corebuilders import ledger, make_gpus, pod, pod_request, share_node
from hypothesis import given, settings
from hypothesis import strategies as st

from gpucore.accounting.node_info import NodeInfo
from gpucore.model import Allocation, AllocationState, Code, FitError, Placement
from gpucore.model.constraints import CPU, PODS, CandidateNode, PodConstraints
from gpucore.scheduling.candidates import PodRequirements
from gpucore.scheduling.fit import fit
from gpucore.scheduling.nominated import (
    CandidatesBesideNominated,
    beside_nominated,
    node_beside,
    refusal_beside,
)
from gpucore.scheduling.pending_pods import NominatedPod, Nominations, before
from gpucore.scheduling.policy import place
from gpucore.simulate.whatif import SimulatedCluster, WhatIfPod
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


def test_a_nominated_pod_keeps_its_cpu_and_its_place_among_the_pods() -> None:
    """kube-scheduler counts both; once the pod is placed the node has them already."""
    request = msgspec.structs.replace(pod_request(pod("n", 1)), cpu_milli=3000)
    nominated = NominatedPod(PodUid("n"), "n", request)
    host = CandidateNode(NodeName("n"), allocatable={CPU: 4000, PODS: 1})
    cluster = CandidatesBesideNominated(
        {host.name: node(4)}, {host.name: host}, nominated={host.name: [nominated]}
    )
    small = pod_request(pod("p", 1))
    why = cluster.refusal(host.name, PodRequirements(small))
    assert why is not None
    assert (why.code, why.detail) == (Code.INSUFFICIENT_RESOURCES, PODS)
    assert why.reserved_for == 1
    with_room = msgspec.structs.replace(host, allocatable={CPU: 4000, PODS: 9})
    needs_cpu = PodRequirements(small, PodConstraints(requests=((CPU, 2000),)))
    why = cluster.refusal_of(node(4), with_room, needs_cpu)
    assert why is not None
    assert (why.detail, why.free) == (CPU, 1000)
    placed = node(4)
    on_gpu = Placement(host.name, {GpuIndex(1): 1})
    placed.put(Allocation(PodUid("n"), "", "n", AllocationState.ASSUMED, on_gpu))
    assert cluster.refusal_of(placed, with_room, needs_cpu) is None


def test_what_if_counts_the_cpu_of_nominated_pods() -> None:
    """A pod of higher priority takes it nevertheless, as in kube-scheduler."""
    evicting = msgspec.structs.replace(pod("evicting", 1), nominated=NodeName("n"), priority=5)
    request = msgspec.structs.replace(pod_request(evicting), cpu_milli=3000)
    nominations = Nominations()
    nominations.note(evicting, request)
    host = CandidateNode(NodeName("n"), allocatable={CPU: 4000})
    needs_cpu = PodConstraints(requests=((CPU, 2000),))
    for priority, fits in ((5, False), (6, True)):
        simulated = SimulatedCluster(
            {host.name: node()}, nodes={host.name: host}, nominations=nominations
        )
        wanted = WhatIfPod("p", pod_request(pod("p", 1)), needs_cpu, priority=priority)
        assert (simulated.grant(wanted).placement is not None) == fits


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
