"""Links that a node invents harm the placement on that node alone."""

import json
from typing import Any

import pytest
from corebuilders import NAMES, ledger, make_gpus, on_node, pod, pod_request, share_node
from hypothesis import given
from hypothesis import strategies as st

from gpucore.accounting.node_infos import node_matrix
from gpucore.model import FitError, Gpu, Inventory, Placement
from gpucore.scheduling.grouping import BY_LINKS
from gpucore.scheduling.policy import score
from gpucore.topology import choice
from gpucore.units import GpuIndex, GpuUuid, NodeName
from gpucore.wire import names as wire_names
from gpucore.wire.node.matrices import MAX_GPUS, matrix_of
from gpucore.wire.node.spec import Node

NUMBERS: st.SearchStrategy[Any] = st.one_of(
    st.integers(-2, 70),
    st.sampled_from([1023, 1024, 2**31, 2**63, 2**64, float("nan"), float("inf"), None, "0", "٣"]),
)
LINKS = st.sampled_from(["NV1", "NV36", "NV999", "NV1000", "NV-1", "NV٣", "PIX", "N-A", "NaN", ""])
PAIRS = st.one_of(
    st.tuples(st.integers(0, 20), st.integers(0, 20)).map(lambda pair: f"{pair[0]}-{pair[1]}"),
    st.sampled_from(["0-", "-1-0", "0-1-2", "0-1e3", "00000-1", "٣-0", "999-1000", ""]),
)
GPUS = st.lists(
    st.fixed_dictionaries(
        {"index": st.integers(0, 20) | NUMBERS, "units": st.just(16)},
        optional={"numa": NUMBERS, "mode": st.sampled_from(["mig", "none", "mps", "x"])},
    ),
    max_size=24,
    unique_by=lambda gpu: str(gpu["index"]),
)
INVENTORIES = st.fixed_dictionaries(
    {
        "version": st.just(1),
        "unit": st.just("GiB"),
        "gpus": GPUS,
        "links": st.dictionaries(PAIRS, st.lists(LINKS, max_size=3), max_size=60),
    }
).map(json.dumps)
TOPOLOGIES = st.one_of(
    st.dictionaries(
        st.tuples(LINKS, NUMBERS, NUMBERS).map(lambda key: "GPU_{}_{}_{}".format(*key)),
        st.sampled_from(["Two NVLinks", "36 NVLinks", "N/A", ""]),
        max_size=40,
    ).map(json.dumps),
    st.sampled_from(["", "null", "{", '{"GPU_NV1_0_1": NaN}', "[" * 5000]),
)


@given(
    inventory=INVENTORIES,
    topology=TOPOLOGIES,
    gpus=st.integers(1, 5),
    policy=st.sampled_from(wire_names.TOPOLOGY_NAMES),
)
def test_any_links_have_an_answer_and_other_nodes_are_placed_on(
    inventory: str, topology: str, gpus: int, policy: str
) -> None:
    """The node gives different GPUs of its own or a reason; its neighbour is as before."""
    capacity = {NAMES.gpu: "8", NAMES.gpu_mem: "128", NAMES.gpu_count: "8"}
    texts = {wire_names.INVENTORY: inventory, wire_names.NODE_TOPOLOGY: topology}
    hostile = Node(NodeName("n"), annotations=texts, capacity=capacity, allocatable=capacity)
    book = ledger(hostile, share_node("good", make_gpus(16), whole=True))
    node_matrix(hostile, NAMES)
    own = {wire_names.TOPOLOGY: policy}
    for requested in (
        pod("p", gpus=gpus, annotations=own),
        pod("s", 4 * gpus, labels={NAMES.gpu_count: str(gpus)}, annotations=own),
    ):
        found = on_node(book, "n", requested)
        if not isinstance(found, FitError):
            chosen = found.group or tuple(found.mem)
            assert len(set(chosen)) == gpus
            assert set(chosen) <= book.nodes()[NodeName("n")].devices.keys()
    assert isinstance(on_node(book, "good", pod("p", gpus=1)), Placement)


@pytest.mark.parametrize(("gpus", "known"), [(MAX_GPUS, True), (MAX_GPUS + 1, False)])
def test_links_of_more_gpus_than_a_machine_has_are_ignored(gpus: int, *, known: bool) -> None:
    """The search would take the extender a second a request; the GPUs are used without links."""
    links = {f"0-{index}": ("NV1",) for index in range(1, gpus)}
    made = tuple(Gpu(GpuIndex(index), GpuUuid(""), 16) for index in range(gpus))
    inventory = Inventory(gpus=made, links=links)
    matrix = matrix_of(inventory)
    assert bool(matrix.links) is known
    assert matrix.notes == (
        () if known else ("links of 65 GPUs are ignored: a machine has 64 at most",)
    )
    placement = on_node(ledger(share_node("n", inventory, whole=True)), "n", pod("p", gpus=2))
    assert isinstance(placement, Placement)
    assert placement.group == (0, 1)


@pytest.mark.parametrize("kind", ["exclusive", "shared"])
def test_among_more_gpus_than_a_machine_has_no_group_is_searched(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A node that states a thousand GPUs, and a pod that requests most, would take minutes."""
    made = tuple(Gpu(GpuIndex(index), GpuUuid(""), 16, numa=0) for index in range(200))
    inventory = Inventory(gpus=made, links={"0-1": ("NV1",)})
    book = ledger(share_node("n", inventory, whole=True))
    monkeypatch.setattr(choice, "grow", lambda *_: pytest.fail("a group is searched"))
    requested = pod("p", gpus=150)
    if kind == "shared":
        requested = pod("p", 150, labels={NAMES.gpu_count: "150"})
    placement = on_node(book, "n", requested)
    assert isinstance(placement, Placement)
    chosen = placement.group or tuple(placement.mem)
    assert chosen == tuple(range(150))
    node_info = book.nodes()[NodeName("n")]
    assert BY_LINKS.rate(node_info, pod_request(requested), chosen, 0.5) == 0.05


def test_no_links_are_read_for_a_pod_of_one_gpu() -> None:
    """A node may write a quarter of a megabyte of them, and change them at any time."""
    book = ledger(share_node("n", Inventory(gpus=make_gpus(16).gpus, links={"0-0": ("NV1",)})))
    node_info = book.nodes()[NodeName("n")]
    assert score(node_info, pod_request(pod("p", 4, core=10))) > 0
    assert "matrix" not in vars(node_info.shape)
