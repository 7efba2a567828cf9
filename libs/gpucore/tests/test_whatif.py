"""What would happen if these pods came now."""

from collections.abc import Iterable, Mapping

import hypothesis.strategies as st
import msgspec
import pytest
from corebuilders import NAMES, ledger, legacy_node, make_gpus, pod, pod_request, share_node
from hypothesis import given

from gpucore.accounting.node_info import NodeInfo
from gpucore.model import Code, ContainerRequest, Placement, PodRequest
from gpucore.model.constraints import CPU, PODS, CandidateNode, PodConstraints
from gpucore.scheduling.fit import fit
from gpucore.scheduling.fragmentation import fragments
from gpucore.scheduling.host_rooms import room_of
from gpucore.scheduling.policy import place, rate, resolve
from gpucore.simulate.whatif import (
    SimulatedCluster,
    WhatIfOutcome,
    WhatIfPod,
    allocation_for,
)
from gpucore.units import NodeName
from gpucore.wire import names as wire_names
from gpucore.workload.pod_mix import PodKind, PodMix


def whatif_pods(*amounts: int) -> list[WhatIfPod]:
    """Wishes of so many units."""
    return [WhatIfPod(f"w{i}", pod_request(pod(f"w{i}", units))) for i, units in enumerate(amounts)]


def granted(cluster: SimulatedCluster, pods: Iterable[WhatIfPod]) -> list[WhatIfOutcome]:
    """The outcomes of pods that come one after the other."""
    return [cluster.grant(each) for each in pods]


def test_wishes_are_placed_one_after_the_other() -> None:
    """Each takes what is left by those before it; the last fits nowhere and states why."""
    book = ledger(legacy_node("a", 15, 1), legacy_node("b", 15, 1))
    cluster = SimulatedCluster(book.nodes())
    outcomes = granted(cluster, whatif_pods(8, 8, 7, 8))
    homes = [o.placement.node if o.placement else None for o in outcomes]
    assert homes == ["a", "b", "a", None]
    assert {n: r.code for n, r in outcomes[3].refusals.items()} == {
        "a": Code.INSUFFICIENT_MEMORY,
        "b": Code.INSUFFICIENT_MEMORY,
    }
    assert [node_info.used_units for node_info in cluster.node_infos.values()] == [15, 8]


def test_the_books_stay_as_they_are() -> None:
    """Asking changes nothing, whatever the answer."""
    book = ledger(legacy_node("a", 15, 1))
    granted(SimulatedCluster(book.nodes()), whatif_pods(8, 3))
    node_info = book.node(NodeName("a"))
    assert node_info is not None
    assert not node_info.allocations
    assert node_info.max_allocatable_memory == 15


def test_the_policy_chooses_the_node() -> None:
    """Binpack fills a node that is used, spread the one that is not."""
    used = pod("p", 3, node="b", annotations={NAMES.mem_idx: "0"})
    book = ledger(legacy_node("a", 15, 1), legacy_node("b", 15, 1), used)
    for policy, node in (("binpack", "b"), ("spread", "a")):
        (outcome,) = granted(SimulatedCluster(book.nodes(), policy), whatif_pods(4))
        assert outcome.placement is not None
        assert outcome.placement.node == node


def test_exclusive_wishes_keep_their_gpu() -> None:
    """A pod for a whole device keeps later pods off its GPU."""
    labels = {wire_names.LABEL_REQUIRE_WHOLE: wire_names.REQUIRE_WHOLE_DEVICE}
    book = ledger(share_node("n", make_gpus(15)))
    alone = WhatIfPod("alone", pod_request(pod("alone", 1, labels=labels)))
    first, second = granted(SimulatedCluster(book.nodes()), [alone, *whatif_pods(1)])
    assert first.placement is not None
    assert second.placement is None


def test_a_cluster_without_nodes_takes_no_pod() -> None:
    """The pod has no place, and no node that refuses it."""
    (lonely,) = granted(SimulatedCluster({}), whatif_pods(1))
    assert (lonely.placement, dict(lonely.refusals)) == (None, {})


def test_a_placed_pod_takes_cpu_from_its_node() -> None:
    """What is free of the GPU is a fragment once the CPU is too little for the usual pods."""
    book = ledger(share_node("n", make_gpus(16)))
    node_info, node = (
        book.nodes()[NodeName("n")],
        CandidateNode(NodeName("n"), allocatable={CPU: 8000}),
    )
    node_info.host = room_of(node_info, node, PodMix({PodKind(mem=8, cpu_milli=4000): 1.0}))
    cluster = SimulatedCluster(book.nodes())
    takes_cpu = PodConstraints(requests=((CPU, 5000),))
    cluster.grant(WhatIfPod("w", pod_request(pod("w", 4)), takes_cpu))
    assert fragments(cluster.node_infos[NodeName("n")]) == pytest.approx(0.75)
    assert fragments(node_info) == 0.0


def test_a_pod_that_ends_gives_its_cpu_back() -> None:
    """GPUs and host of the node are as before it was placed."""
    book = ledger(share_node("n", make_gpus(16)))
    name = NodeName("n")
    node_info, node = book.nodes()[name], CandidateNode(name, allocatable={CPU: 8000, PODS: 1})
    node_info.host = room_of(node_info, node, PodMix({PodKind(mem=8, cpu_milli=4000): 1.0}))
    cluster = SimulatedCluster(book.nodes(), nodes={name: node})
    takes_cpu = PodConstraints(requests=((CPU, 5000),))
    wanted = WhatIfPod("w", pod_request(pod("w", 4)), takes_cpu)
    for _ in range(2):
        assert cluster.grant(wanted).placement is not None
        assert cluster.grant(wanted).placement is None
        (uid,) = cluster.node_infos[name].allocations
        cluster.end(name, {uid: takes_cpu.requests})
        assert cluster.node_infos[name].host == node_info.host


ASKS = st.one_of(
    st.builds(
        lambda mem, core, alone: PodRequest(
            (ContainerRequest(mem, core),), mem, core, whole_device=alone
        ),
        st.integers(1, 9),
        st.sampled_from([0, 0, 40]),
        st.booleans(),
    ),
    st.builds(
        lambda gpus: PodRequest((ContainerRequest(gpus=gpus),), gpus=gpus), st.integers(1, 2)
    ),
)
"""Demands of which some are equal, as replicas are."""


def plainly(
    node_infos: Mapping[NodeName, NodeInfo], whatif_pod: WhatIfPod, policy: str
) -> Placement | None:
    """Where a pod goes when every node is evaluated anew."""
    rated: list[tuple[tuple[float, ...], Placement]] = []
    for node_info in node_infos.values():
        placement = place(node_info, whatif_pod.pod_request, policy)
        if isinstance(placement, Placement):
            chosen = resolve(node_info, whatif_pod.pod_request, policy)
            rated.append((rate(node_info, whatif_pod.pod_request, placement, chosen), placement))
    return max(rated, key=lambda pair: pair[0])[1] if rated else None


@pytest.mark.slow
@given(
    nodes=st.lists(st.lists(st.integers(4, 16), min_size=1, max_size=3), min_size=1, max_size=4),
    requested=st.lists(ASKS, max_size=9),
    policy=st.sampled_from(["binpack", "spread", "fragmentation"]),
    parted=st.integers(0, 9),
)
def test_what_is_kept_never_changes_an_answer(
    nodes: list[list[int]], requested: list[PodRequest], policy: str, parted: int
) -> None:
    """Equal to asking every node anew for every pod, also where it goes on in a branch."""
    book = ledger(
        *(share_node(f"n{i}", make_gpus(*each), whole=True) for i, each in enumerate(nodes))
    )
    simulated, books = SimulatedCluster(book.nodes(), policy), dict(book.nodes())
    placed = 0
    for number, one in enumerate(requested):
        simulated = simulated.branch() if number == parted else simulated
        whatif_pod = WhatIfPod(f"w{number}", one)
        outcome, expected = simulated.grant(whatif_pod), plainly(books, whatif_pod, policy)
        assert outcome.placement == expected
        if expected is None:
            assert outcome.refusals == {name: fit(books[name], one) for name in books}
            continue
        placed += 1
        books[expected.node] = books[expected.node].copy()
        books[expected.node].put(allocation_for(whatif_pod, expected, placed))
    assert [a.allocations for a in simulated.node_infos.values()] == [
        a.allocations for a in books.values()
    ]


def test_a_branch_changes_nothing_in_the_trial_it_came_from() -> None:
    """What a branch places is not there in the next branch."""
    simulated = SimulatedCluster(ledger(legacy_node("a", 15, 1)).nodes())
    eight = WhatIfPod("w", PodRequest((ContainerRequest(8),), 8))
    for _ in range(2):
        branch = simulated.branch()
        assert branch.grant(eight).placement is not None
        assert branch.grant(msgspec.structs.replace(eight, name="v")).placement is None
    assert not simulated.node_infos[NodeName("a")].allocations
