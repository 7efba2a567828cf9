"""Which GPU a policy takes, and how it rates nodes."""

from collections.abc import Sequence

import msgspec
import pytest
from corebuilders import (
    NAMES,
    ledger,
    legacy_node,
    make_gpus,
    on_node,
    pod,
    pod_request,
    share_node,
)

from gpucore.accounting.ledger import Ledger
from gpucore.accounting.node_info import NodeInfo
from gpucore.model import Placement
from gpucore.scheduling.policy import POLICIES, fragmentation_policy, place, resolve, score
from gpucore.units import GpuIndex, NodeName
from gpucore.wire import names as wire_names
from gpucore.wire.pod.spec import Pod
from gpucore.workload.kinds import Kind, Workload

N = NodeName("n")


def held(name: str, mem: int, index: int, core: int = 0) -> Pod:
    """A pod that holds so much of one GPU of node n."""
    return pod(name, mem, core=core, node="n", annotations={NAMES.mem_idx: str(index)})


def node_info(book: Ledger, name: str = "n") -> NodeInfo:
    """The books of a node that is there."""
    found = book.node(NodeName(name))
    assert found is not None
    return found


def used_gpus(*used: int, size: int = 15, labels: dict[str, str] | None = None) -> Ledger:
    """A node of equal GPUs of which so much is used."""
    pods = [held(f"h{i}", units, i) for i, units in enumerate(used) if units]
    return ledger(share_node("n", make_gpus(*[size] * len(used)), labels=labels), *pods)


def chosen(book: Ledger, pending: Pod, policy: str = "") -> list[int]:
    """The GPUs that a share is placed on."""
    placement = on_node(book, "n", pending, policy)
    assert isinstance(placement, Placement)
    return list(placement.mem or placement.core)


@pytest.mark.parametrize(
    ("policy", "gpu"), [("binpack", 1), ("spread", 0), ("fragmentation", 1), ("", 1)]
)
def test_each_policy_takes_its_gpu(policy: str, gpu: int) -> None:
    """Of 15, 9, 4 and 15 free, 9 units go to the tightest GPU or to the emptiest."""
    assert chosen(used_gpus(0, 6, 11, 0), pod("p", 9), policy) == [gpu]


@pytest.mark.parametrize("policy", ["binpack", "spread", "fragmentation"])
def test_ties_go_to_the_lowest_index(policy: str) -> None:
    """Equal GPUs are taken in order."""
    assert chosen(used_gpus(0, 0, 0), pod("p", 3), policy) == [0]


def test_fragmentation_keeps_what_others_can_use() -> None:
    """A quarter goes where it leaves no part that the usual work cannot use."""
    halves = Workload((Kind(1.0, 500),))
    book = used_gpus(5, 3, size=12)
    pending = pod_request(pod("p", 3))
    policy = fragmentation_policy(lambda _info, _request: (halves, halves))
    best_fit = place(node_info(book), pending, POLICIES["binpack"])
    least_lost = place(node_info(book), pending, policy)
    assert isinstance(best_fit, Placement)
    assert isinstance(least_lost, Placement)
    assert (list(best_fit.mem), list(least_lost.mem)) == ([0], [1])


def test_compute_decides_where_no_memory_is_requested() -> None:
    """A share of compute alone packs by compute."""
    book = ledger(share_node("n", make_gpus(15, 15)), held("a", 1, 1, core=50))
    assert chosen(book, pod("p", core=40), "binpack") == [1]
    assert chosen(book, pod("p", core=40), "spread") == [0]


def test_several_gpus_are_chosen_by_the_policy() -> None:
    """The two tightest GPUs, or the two emptiest."""
    book = used_gpus(0, 6, 3, 0)
    pending = pod("p", 8, labels={NAMES.gpu_count: "2"})
    assert chosen(book, pending, "binpack") == [1, 2]
    assert chosen(book, pending, "spread") == [0, 3]


def test_the_pods_policy_rules_then_the_nodes_then_the_default() -> None:
    """Annotation before label before the name given; a Policy as it is; then binpack."""
    node = node_info(used_gpus(0, labels={wire_names.LABEL_PLACEMENT: "spread"}))
    plain = node_info(used_gpus(0))
    requested = pod_request(pod("p", 1, annotations={wire_names.POLICY: "fragmentation"}))
    pending = pod_request(pod("p", 1))
    assert resolve(node, requested, "binpack").name == "fragmentation"
    assert resolve(node, pending, "binpack").name == "spread"
    assert resolve(plain, pending, "fragmentation").name == "fragmentation"
    assert resolve(plain, pending, "").name == "binpack"
    assert resolve(node, requested, POLICIES["binpack"]).name == "binpack"


def test_an_unknown_label_is_the_default_and_a_fault() -> None:
    """A misspelt placement label of a node is reported, and binpack used."""
    node = node_info(used_gpus(0, labels={wire_names.LABEL_PLACEMENT: "pack"}))
    assert resolve(node, pod_request(pod("p", 1)), "").name == "binpack"
    assert node.shape.faults == (f"label {wire_names.LABEL_PLACEMENT} is not a known policy",)


@pytest.mark.parametrize("text", ["0", "many", "-1"])
def test_limits_that_are_none_are_faults(text: str) -> None:
    """Labels without a number set no limit and are reported."""
    labels = {wire_names.LABEL_MAX_POD: text, wire_names.LABEL_OVERSELL: text}
    shape = node_info(used_gpus(0, labels=labels)).shape
    assert (shape.max_pods, shape.oversell) == (0, 1)
    assert shape.faults == (
        f"label {wire_names.LABEL_MAX_POD} is not a number from 1 to 1023",
        f"label {wire_names.LABEL_OVERSELL} is not a number from 1 to 16",
    )


def test_whole_gpus_are_the_lowest_free_ones() -> None:
    """Without a hook the free GPUs of lowest index are given."""
    book = ledger(share_node("n", make_gpus(15, 15, 15), whole=True), held("a", 1, 0))
    placement = on_node(book, "n", pod("g", gpus=2))
    assert placement == Placement(N, group=(GpuIndex(1), GpuIndex(2)))


def test_a_hook_chooses_the_group() -> None:
    """Topology plugs in here: it gets the free GPUs and returns the chosen ones in order."""
    calls: list[tuple[str, list[int], int]] = []

    def last_first(books: NodeInfo, free: Sequence[GpuIndex], count: int) -> tuple[GpuIndex, ...]:
        calls.append((books.name, list(free), count))
        return tuple(free[::-1][:count])

    book = ledger(share_node("n", make_gpus(6, 6, 6, 6), whole=True), held("a", 1, 2))
    group = place(node_info(book), pod_request(pod("g", gpus=2)), choose_group=last_first)
    wide = pod_request(pod("p", 10, labels={NAMES.gpu_count: "2"}))
    spread = place(node_info(book), wide, choose_group=last_first)
    assert group == Placement(N, group=(GpuIndex(3), GpuIndex(1)))
    assert isinstance(spread, Placement)
    assert spread.mem == {3: 5, 2: 5}
    assert calls == [("n", [0, 1, 3], 2), ("n", [0, 1, 2, 3], 2)]


@pytest.mark.parametrize(
    ("policy", "empty", "half", "full"),
    [("binpack", 2, 7, 0), ("spread", 8, 3, 0), ("fragmentation", 4, 6, 0)],
)
def test_scores_of_nodes(policy: str, empty: int, half: int, full: int) -> None:
    """Binpack prefers the fullest node, spread the emptiest; one that is full has 0."""
    pending = pod_request(pod("p", 4, core=1))
    scores = [
        score(node_info(used_gpus(*used, size=10)), pending, policy)
        for used in ((0, 0), (6, 4), (10, 10))
    ]
    assert scores == [empty, half, full]


def test_fragmentation_scores_a_lucky_fit_higher() -> None:
    """A node where the request fills what nobody else can use is the best."""
    halves = Workload((Kind(1.0, 500),))
    policy = fragmentation_policy(lambda _info, _request: (halves, halves))
    pending = pod_request(pod("p", 4))
    lucky, neutral = used_gpus(6, size=10), used_gpus(0, size=10)
    assert score(node_info(lucky), pending, policy) > score(node_info(neutral), pending, policy)


def test_scores_count_whole_gpus_and_compute() -> None:
    """A GPU that is used exclusively is full, and compute counts where it is scarcer."""
    book = ledger(share_node("n", make_gpus(10, 10), whole=True))
    assert score(node_info(book), pod_request(pod("g", gpus=1))) == 5
    assert score(node_info(book), pod_request(pod("p", 1, core=80))) == 4


def test_a_score_is_for_nodes_that_fit() -> None:
    """A node that cannot take the pod has 0 whatever the policy."""
    book = ledger(legacy_node("n", 15, 1))
    pending = pod_request(pod("p", 16))
    assert [score(node_info(book), pending, name) for name in POLICIES] == [0, 0, 0]


def test_a_copy_of_an_account_is_apart() -> None:
    """Books that are copied may change without the first ones."""
    book = used_gpus(5, 0)
    twin = node_info(book).copy()
    twin.drop(pod("h0").uid)
    assert [gpu.used for gpu in twin.devices.values()] == [0, 0]
    assert [gpu.used for gpu in node_info(book).devices.values()] == [5, 0]
    assert (twin.max_allocatable_memory, node_info(book).max_allocatable_memory) == (15, 15)
    allocation = next(iter(node_info(book).allocations.values()))
    twin.put(allocation)
    twin.put(msgspec.structs.replace(allocation, placement=Placement(N, {GpuIndex(1): 5})))
    assert [gpu.used for gpu in twin.devices.values()] == [0, 5]
    assert twin.used_units == 5
    assert twin.total_units == 30
