"""Exclusive GPUs, and shares over several GPUs, go to GPUs that are well joined."""

from collections.abc import Sequence

import pytest
from corebuilders import (
    NAMES,
    assumed,
    ledger,
    make_gpus,
    on_node,
    pod,
    pod_request,
    share_node,
    used,
)
from hypothesis import given
from hypothesis import strategies as st
from linkedgpus import BRIDGED, VOLTA, bare_node, indexes, linked_node

from gpucore.accounting.ledger import Ledger
from gpucore.accounting.node_info import NodeInfo
from gpucore.model import ContainerRequest, FitError, Gpu, Inventory, Placement, PodRequest
from gpucore.model.links import Matrix, merge
from gpucore.scheduling.fit import fit
from gpucore.scheduling.grouping import Grouping, prepare, prepared
from gpucore.scheduling.policy import place, score
from gpucore.simulate.whatif import SimulatedCluster, WhatIfPod
from gpucore.testing.machines import V100_GUIDE
from gpucore.topology.choice import KEPT_LARGE
from gpucore.topology.policies import GpuGroup, plan
from gpucore.topology.static import decode_static
from gpucore.units import GpuIndex, GpuUuid, NodeName
from gpucore.wire import names as wire_names
from gpucore.wire.node.matrices import encode_annotation
from gpucore.wire.node.spec import Node
from gpucore.wire.pod.spec import Pod

GUIDE = V100_GUIDE.matrix


def node_info(book: Ledger, name: str = "n") -> NodeInfo:
    """The books of a node that is there."""
    found = book.node(NodeName(name))
    assert found is not None
    return found


def holding(name: str, *gpus: int) -> Pod:
    """A pod that has these GPUs of node n whole."""
    group = ",".join(map(str, gpus))
    return pod(name, gpus=len(gpus), node="n", annotations={NAMES.group: group})


def group(book: Ledger, count: int, grouping: Grouping | None = None, **texts: str) -> list[int]:
    """The exclusive GPUs that a pod would get."""
    requested = pod_request(pod("pending", gpus=count, annotations=texts))
    placement = place(node_info(book), requested, grouping=grouping or Grouping())
    assert isinstance(placement, Placement)
    return list(placement.group)


def wide(units: int, count: int, **annotations: str) -> Pod:
    """A share over several GPUs."""
    return pod("wide", units, labels={NAMES.gpu_count: str(count)}, annotations=annotations)


def shared(book: Ledger, requested: Pod, policy: str = "") -> list[int]:
    """The GPUs that a share would get."""
    placement = on_node(book, "n", requested, policy)
    assert isinstance(placement, Placement)
    return sorted(placement.mem)


@pytest.mark.parametrize(
    ("count", "groups"),
    [
        (1, [(0,), (1,), (2,), (3,), (4,), (5,), (6,), (7,)]),
        (2, [(0, 3), (1, 2), (4, 7), (5, 6)]),
        (4, [(0, 1, 2, 3), (4, 5, 6, 7)]),
        (8, [(0, 1, 2, 3, 4, 5, 6, 7)]),
    ],
)
def test_a_volta_is_filled_by_its_best_groups_and_then_refuses(
    count: int, groups: Sequence[tuple[int, ...]]
) -> None:
    """The sequences of NVIDIA's own cases, through placement and the books."""
    book = ledger(linked_node("n"))
    for number, expected in enumerate(groups):
        allocation = assumed(book, "n", pod(f"p{number}", gpus=count))
        assert allocation.placement.group == indexes(*expected)
    refused = on_node(book, "n", pod("late", gpus=count))
    assert isinstance(refused, FitError)
    assert refused.free == 0


def test_a_pods_own_policy_overrules_the_clusters() -> None:
    """The annotation gpushare/topology decides; simple takes the lowest indexes."""
    book = ledger(linked_node("n"))
    assert group(book, 2, Grouping("best-effort"), **{wire_names.TOPOLOGY: "simple"}) == [0, 1]
    assert group(book, 2, Grouping("simple"), **{wire_names.TOPOLOGY: "bandwidth"}) == [2, 3]
    assert group(book, 2, Grouping("simple")) == [0, 1]


def test_an_unknown_policy_is_reported_and_never_raised() -> None:
    """A misspelt annotation is a fault in words that names the policies there are."""
    requested = pod_request(pod("p", gpus=2, annotations={wire_names.TOPOLOGY: "fastest"}))
    assert requested.topology == ""
    assert requested.fault == (
        "its topology policy 'fastest' is unknown; "
        "use one of best-effort, bandwidth, static, simple"
    )
    refusal = fit(node_info(ledger(linked_node("n"))), requested)
    assert refusal is not None
    assert refusal.unresolvable


def test_links_of_a_2019_node_are_read_from_its_annotation() -> None:
    """A node of the first topology plugin has no inventory, but publishes its links."""
    topology = encode_annotation(VOLTA)
    book = ledger(bare_node("n", 8, GPU_TOPOLOGY=topology))
    assert group(book, 2) == [0, 3]
    assert group(ledger(bare_node("n", 8, GPU_TOPOLOGY="{no json")), 2) == [0, 1]
    assert group(ledger(bare_node("n", 8)), 2) == [0, 1]


def test_the_matrix_of_a_node_is_read_once() -> None:
    """Later decisions about the same shape find the same matrix."""
    shape = node_info(ledger(linked_node("n"))).shape
    assert shape.matrix is shape.matrix
    assert shape.matrix.links == VOLTA.links


def test_static_takes_configured_sets_in_their_order_and_never_refuses_what_fits() -> None:
    """A free set of the size first, in the order it is written; else as best-effort would."""
    static = decode_static(b'{"ring": {"2": [[5, 1], [2, 6]]}}')
    node = linked_node("n", node_type="ring")
    grouping = Grouping("static", static)
    assert group(ledger(node), 2, grouping) == [5, 1]
    assert group(ledger(node, holding("a", 1)), 2, grouping) == [2, 6]
    assert group(ledger(node, holding("a", 1), holding("b", 2)), 2, grouping) == [0, 3]
    assert group(ledger(node), 3, grouping) == group(ledger(node), 3)
    assert group(ledger(linked_node("n")), 2, grouping) == [0, 3]


def test_static_knows_the_tables_of_nvidias_machines() -> None:
    """Without any configuration the shipped sets of the node's type are used."""
    book = ledger(linked_node("n", node_type="dgx1-pascal"))
    assert group(book, 2, Grouping("static")) == [0, 2]


def test_a_share_over_several_gpus_takes_joined_gpus_that_are_fullest() -> None:
    """Of the pairs that are joined as well as the best, the one the GPU policy likes first."""
    bridges = linked_node("n", BRIDGED)
    assert shared(ledger(bridges), wide(8, 2)) == [0, 3]
    full = pod("held", 5, node="n", annotations={NAMES.mem_idx: "2"})
    assert shared(ledger(bridges, full), wide(8, 2)) == [1, 2]
    assert shared(ledger(bridges, full), wide(8, 2), "spread") == [0, 3]
    assert shared(ledger(bridges, full), wide(24, 2)) == [0, 3]
    assert shared(ledger(bridges, full), wide(8, 2, **{wire_names.TOPOLOGY: "simple"})) == [0, 2]


def test_shares_over_gpus_of_unknown_links_are_packed_by_the_policy() -> None:
    """Nothing changes where nobody knows the links."""
    full = pod("held", 5, node="n", annotations={NAMES.mem_idx: "2"})
    book = ledger(share_node("n", make_gpus(16, 16, 16)), full)
    assert shared(book, wide(8, 2)) == [0, 2]


def test_shares_and_whole_gpus_are_in_one_ledger() -> None:
    """GPUs with a share are no part of a group, and GPUs of a group take no share."""
    book = ledger(linked_node("n"))
    assumed(book, "n", pod("share", 4))
    assert group(book, 2) == [2, 3]
    allocation = assumed(book, "n", pod("quad", gpus=4))
    assert allocation.placement.group == indexes(4, 5, 6, 7)
    assumed(book, "n", wide(8, 2))
    assert used(book, "n") == [8, 0, 0, 4, 0, 0, 0, 0]


def test_nodes_are_compared_by_their_best_group() -> None:
    """NVLinks before PCIe, PCIe before GPUs of which nobody knows how they are joined."""
    pair = pod_request(pod("p", gpus=2))
    pcie = linked_node("n", VOLTA)
    taken = ledger(pcie, holding("a", 0, 1, 2), holding("b", 4, 5, 7))  # 3 and 6 are left: SYS
    unknown = ledger(share_node("n", make_gpus(16, 16), whole=True))
    marks = [score(node_info(book), pair) for book in (ledger(linked_node("n")), taken, unknown)]
    assert marks == [7, 1, 1]
    assert score(node_info(ledger(pcie)), pod_request(wide(8, 2))) == 7
    assert score(node_info(taken), pod_request(pod("p", gpus=3))) == 0


def test_simple_compares_nodes_as_the_policy_packs() -> None:
    """Who does not care for links gets exclusive GPUs packed onto the fullest node."""
    pair = pod_request(pod("p", gpus=2))
    fresh, fuller = ledger(linked_node("n")), ledger(linked_node("n"), holding("a", 0, 1, 2, 3))
    simple = Grouping("simple")
    marks = [score(node_info(book), pair, grouping=simple) for book in (fresh, fuller)]
    assert marks == [2, 8]


def test_what_if_takes_the_node_with_the_better_group() -> None:
    """A question what would happen is answered as the extender would decide."""
    book = ledger(
        share_node("a", make_gpus(16, 16), whole=True), linked_node("b"), linked_node("c", BRIDGED)
    )
    whatif_pods = [WhatIfPod(f"w{i}", pod_request(pod("p", gpus=4))) for i in range(3)]
    cluster = SimulatedCluster(book.nodes())
    outcomes = [cluster.grant(each) for each in whatif_pods]
    assert [outcome.placement and outcome.placement.node for outcome in outcomes] == ["b", "b", "c"]


def ten_gpus(across: str) -> Matrix:
    """A DGX-1 and two GPUs more."""
    links = {
        (a, b): VOLTA.between(a, b) if b < 8 else (across,)
        for a in range(10)
        for b in range(a + 1, 10)
    }
    return Matrix(gpus=indexes(*range(10)), links=links)


def test_without_waiting_large_machines_are_exact_once_their_tables_are_prepared() -> None:
    """Until then the group is grown from the best pair; afterwards it is part of the best cut."""
    book = ledger(linked_node("n", ten_gpus("PHB")), holding("h", 1, 3, *range(6, 10)))
    shape = node_info(book).shape
    hurried = Grouping(wait=False)
    assert not prepared(shape)
    assert group(book, 2, hurried) == [0, 4]
    assert sum(1 for _ in prepare(shape)) > 100
    assert prepared(shape)
    assert group(book, 2, hurried) == [4, 5]
    assert list(prepare(shape)) == []


def test_requests_that_do_not_wait_push_out_no_tables() -> None:
    """Many machines without tables are looked up; the one that has them keeps them."""
    book = ledger(linked_node("n", ten_gpus("PXB")), holding("h", 1, 3, *range(6, 10)))
    for _ in prepare(node_info(book).shape):
        pass
    for pair in range(2 * KEPT_LARGE):
        other = Matrix(gpus=indexes(*range(10)), links={(0, 1): (f"NV{pair + 1}",)})
        group(ledger(linked_node("n", other)), 2, Grouping(wait=False))
    assert prepared(node_info(book).shape)
    assert group(book, 2, Grouping(wait=False)) == [4, 5]


def test_with_waiting_the_tables_of_the_size_are_computed_at_once() -> None:
    """The commands have no background in which tables could be prepared."""
    book = ledger(linked_node("n", ten_gpus("NODE")), holding("h", 1, 3, *range(6, 10)))
    assert group(book, 2) == [4, 5]
    assert not prepared(node_info(book).shape)


def test_small_machines_and_those_without_links_need_no_preparation() -> None:
    """Eight GPUs are computed within the request; where nothing is known nothing is computed."""
    small, unknown = linked_node("n"), share_node("m", make_gpus(*[16] * 16), whole=True)
    book = ledger(small, unknown)
    assert prepared(node_info(book).shape)
    assert prepared(node_info(book, "m").shape)
    assert group(book, 2, Grouping(wait=False)) == group(book, 2)


@given(
    held=st.sets(st.integers(0, 7), max_size=7),
    count=st.integers(1, 8),
    policy=st.sampled_from(wire_names.TOPOLOGY_NAMES),
)
def test_the_group_is_free_and_whole_whatever_the_policy(
    held: set[int], count: int, policy: str
) -> None:
    """Exactly as many free GPUs as requested, none twice; refused only where too few are free."""
    node = linked_node("n", node_type="dgx1-volta")
    book = ledger(node, *(holding(f"h{gpu}", gpu) for gpu in sorted(held)))
    requested = pod_request(pod("pending", gpus=count, annotations={wire_names.TOPOLOGY: policy}))
    placement = place(node_info(book), requested)
    assert isinstance(placement, FitError) == (count > 8 - len(held))
    if isinstance(placement, Placement):
        assert len(set(placement.group)) == count
        assert held.isdisjoint(placement.group)


@given(used_units=st.lists(st.integers(0, 16), min_size=4, max_size=4), count=st.integers(2, 4))
def test_a_wide_share_is_joined_as_well_as_the_gpus_that_fit_allow(
    used_units: list[int], count: int
) -> None:
    """The group is worth at least that of the topology policy over all GPUs with room."""
    pods = [
        pod(f"h{i}", units, node="n", annotations={NAMES.mem_idx: str(i)})
        for i, units in enumerate(used_units)
        if units
    ]
    placement = on_node(ledger(linked_node("n", BRIDGED), *pods), "n", wide(4 * count, count))
    fitting = [gpu for gpu, units in enumerate(used_units) if units <= 12]
    assert isinstance(placement, FitError) == (len(fitting) < count)
    if isinstance(placement, Placement):
        best = plan(BRIDGED, fitting, count)
        assert set(placement.mem) <= set(fitting)
        assert BRIDGED.sum_of(placement.mem) >= best.score  # type: ignore[union-attr]


@given(
    used_units=st.lists(st.integers(0, 16), min_size=8, max_size=8),
    count=st.integers(2, 4),
    policy=st.sampled_from(["binpack", "spread"]),
)
def test_a_wide_share_has_no_slower_pair_than_exclusive_gpus_with_bandwidth(
    used_units: list[int], count: int, policy: str
) -> None:
    """A ring is as fast as its slowest link: a larger sum does not make up for a slow pair."""
    pods = [
        pod(f"h{i}", units, node="n", annotations={NAMES.mem_idx: str(i)})
        for i, units in enumerate(used_units)
        if units
    ]
    requested = wide(4 * count, count, **{wire_names.TOPOLOGY: "bandwidth"})
    placement = on_node(ledger(linked_node("n", GUIDE), *pods), "n", requested, policy)
    fitting = [gpu for gpu, units in enumerate(used_units) if units <= 12]
    if isinstance(placement, Placement):
        best = plan(GUIDE, fitting, count, policy="bandwidth")
        assert isinstance(best, GpuGroup)
        mine = GUIDE.slowest_of(placement.mem), GUIDE.sum_of(placement.mem)
        assert mine >= (GUIDE.slowest_of(best.gpus), best.score)


def test_bandwidth_prefers_the_fuller_of_groups_without_a_slow_pair() -> None:
    """GPUs 2, 3 and 4 share a switch; a bridge to GPU 0 has the larger sum, and a slow pair."""
    near = {(0, 1): ["NV4"], (2, 3): ["PIX"], (2, 4): ["PIX"], (3, 4): ["PIX"]}
    gpus = indexes(*range(6))
    pairs = [((a, b), near.get((a, b), ["SYS"])) for a in gpus for b in gpus if a < b]
    full = pod("h", 8, node="n", annotations={NAMES.mem_idx: "0"})
    requested = wide(12, 3, **{wire_names.TOPOLOGY: "bandwidth"})
    assert shared(ledger(linked_node("n", merge(gpus, pairs)), full), requested) == [2, 3, 4]


def unlinked_node(instances: int, linked: int = 0) -> Node:
    """A node of GPUs that are all joined, and then of MIG instances on two NUMA nodes."""
    gpus = [Gpu(GpuIndex(i), GpuUuid(f"GPU-{i}"), 16, numa=i % 2) for i in range(linked)]
    slots = range(linked, linked + instances)
    gpus += [Gpu(GpuIndex(i), GpuUuid(f"M-{i}"), 4, numa=i % 2, mig=True) for i in slots]
    links = {f"{a}-{b}": ("NV4",) for a in range(linked) for b in range(a + 1, linked)}
    return share_node("n", Inventory(gpus=tuple(gpus), links=links), whole=True)


def of_single_gpus(count: int) -> PodRequest:
    """A pod whose containers request one exclusive GPU each, so that MIG instances serve it."""
    return PodRequest((ContainerRequest(gpus=1),) * count, gpus=count)


@pytest.mark.parametrize(
    ("instances", "linked", "gpus"), [(56, 0, (0, 1)), (28, 4, (0, 2)), (20, 8, (0, 2))]
)
def test_of_many_mig_instances_no_more_are_compared_than_the_group_takes(
    monkeypatch: pytest.MonkeyPatch, instances: int, linked: int, gpus: tuple[int, ...]
) -> None:
    """They have no links. The linked GPUs are searched exactly, also by their NUMA nodes."""
    info = node_info(ledger(unlinked_node(instances, linked)))
    monkeypatch.delattr("gpucore.topology.choice.grow")
    placement = place(info, of_single_gpus(2))
    assert isinstance(placement, Placement)
    assert placement.group == gpus


def test_the_rest_of_a_large_node_is_not_partitioned_for_a_placement(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its score takes longest of all, and only 'gpushare topology' prints it."""
    info = node_info(ledger(unlinked_node(0, 24)))
    monkeypatch.delattr("gpucore.topology.choice.cut")
    placement = place(info, pod_request(pod("p", gpus=2)))
    assert isinstance(placement, Placement)
    assert placement.group == (0, 1)


@given(
    linked=st.integers(0, 10),
    taken=st.sets(st.integers(0, 39)),
    count=st.integers(2, 6),
    policy=st.sampled_from(["best-effort", "bandwidth", "simple"]),
)
def test_what_is_left_out_of_the_search_would_make_no_better_group(
    linked: int, taken: set[int], count: int, policy: str
) -> None:
    """The group scores no less than one of all free GPUs, and ``simple`` takes the lowest."""
    node = unlinked_node(40 - linked, linked)
    info = node_info(ledger(node, *(holding(f"h{gpu}", gpu) for gpu in sorted(taken))))
    free = sorted(set(range(40)) - taken)
    placement = place(info, of_single_gpus(count), grouping=Grouping(policy))
    if not isinstance(placement, Placement):
        return
    best = plan(info.shape.matrix, free, count, policy=policy)
    assert isinstance(best, GpuGroup)
    assert info.shape.matrix.sum_of(placement.group) >= best.score
    if policy == "simple":
        assert list(placement.group) == free[:count]
