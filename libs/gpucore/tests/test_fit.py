"""Whether a request fits, and the figures of why not."""

import msgspec
import pytest
from corebuilders import (
    NAMES,
    assumed,
    ledger,
    legacy_node,
    make_gpus,
    on_node,
    pod,
    pod_request,
    share_node,
)

from gpucore.accounting.ledger import Ledger
from gpucore.explain.groups import grouped
from gpucore.explain.sentences import sentence
from gpucore.model import Code, DeviceFitError, FitError, Inventory, IsolationMode, Placement
from gpucore.scheduling.device_fit import exclusive_fit_error
from gpucore.scheduling.filter import filter_nodes
from gpucore.scheduling.fit import fit
from gpucore.steps import complete
from gpucore.units import GIB, GpuIndex, NodeName
from gpucore.wire import names as wire_names
from gpucore.wire.node.spec import Node
from gpucore.wire.pod.spec import Pod

N = NodeName("n")
TWO = {NAMES.gpu_count: "2"}
NO_COUNT = {NAMES.gpu_count: "x"}
MPS = {wire_names.ISOLATION: "mps"}
WHOLE = {wire_names.LABEL_REQUIRE_WHOLE: wire_names.REQUIRE_WHOLE_DEVICE}


def refused(book: Ledger, requested: Pod) -> FitError:
    """The refusal of a pod that does not fit on node n."""
    refusal = on_node(book, "n", requested)
    assert isinstance(refusal, FitError)
    return refusal


def held(name: str, mem: int = 0, *, index: int = 0, core: int = 0) -> Pod:
    """A pod that holds so much of one GPU of node n."""
    return pod(name, mem, core=core, node="n", annotations={NAMES.mem_idx: str(index)})


def test_memory_is_refused_with_figures() -> None:
    """Every GPU states what it has left, of what, and what was requested."""
    book = ledger(share_node("n", make_gpus(15, 10)), held("a", 9), held("b", 3, index=1))
    assert refused(book, pod("p", 8)) == FitError(
        N,
        Code.INSUFFICIENT_MEMORY,
        gpus=(
            DeviceFitError(GpuIndex(0), Code.INSUFFICIENT_MEMORY, 6, 15, 8),
            DeviceFitError(GpuIndex(1), Code.INSUFFICIENT_MEMORY, 7, 10, 8),
        ),
        unit=GIB,
        requested=8,
        free=0,
        total=1,
    )


def test_compute_is_refused_with_figures() -> None:
    """A GPU with the memory but not the compute states how much compute is left."""
    book = ledger(share_node("n", make_gpus(15)), held("a", 1, core=70))
    refusal = refused(book, pod("p", 2, core=40))
    assert refusal.code is Code.INSUFFICIENT_CORE
    assert refusal.gpus == (DeviceFitError(GpuIndex(0), Code.INSUFFICIENT_CORE, 30, 100, 40),)
    assert isinstance(on_node(book, "n", pod("p", 2, core=30)), Placement)


def test_a_gpu_with_the_memory_names_the_reason() -> None:
    """Where one GPU lacks compute and another memory, the first came nearest: it is compute."""
    book = ledger(share_node("n", make_gpus(15, 15)), held("a", 2, core=80), held("b", 14, index=1))
    refusal = refused(book, pod("p", 6, core=50))
    assert refusal.code is Code.INSUFFICIENT_CORE
    assert sentence(refusal) == (
        "No GPU with enough free memory has enough free compute: no GPU can take 6 GiB: "
        "GPU 0 has 20 of 100 percent of compute free, requested 50, GPU 1 has 1 of 15 free"
    )


def test_a_request_of_compute_alone_is_refused_without_an_amount_of_memory() -> None:
    """The sentence states the requested percentage, and no 0 GiB."""
    book = ledger(share_node("n", make_gpus(15)), held("a", core=80))
    assert sentence(refused(book, pod("p", core=50))) == (
        "No GPU with enough free memory has enough free compute: no GPU can take the request: "
        "GPU 0 has 20 of 100 percent of compute free, requested 50"
    )


@pytest.mark.parametrize(
    ("mem", "core", "figures"),
    [
        (8, 25, "25 percent of compute over 2 GPUs"),
        (0, 25, "25 percent of compute over 2 GPUs"),
        (7, 25, "7 GiB over 2 GPUs"),
    ],
)
def test_the_amount_that_does_not_divide_is_named(mem: int, core: int, figures: str) -> None:
    """Memory and compute are spread over the GPUs each; memory is checked first."""
    book = ledger(share_node("n", make_gpus(15, 15)))
    refusal = refused(book, pod("p", mem, core=core, labels=TWO))
    assert sentence(refusal) == f"{refusal.code.sentence.rstrip('.')}: {figures}"
    (group,) = complete(grouped({N: refusal}, book.nodes()))
    assert f"{group.requested} {group.measure}" in figures


def test_the_largest_share_just_fits() -> None:
    """Exactly what is free fits, one unit or percent more does not."""
    book = ledger(share_node("n", make_gpus(15)), held("a", 5, core=40))
    assert isinstance(on_node(book, "n", pod("p", 10, core=60)), Placement)
    assert refused(book, pod("p", 11)).code is Code.INSUFFICIENT_MEMORY
    assert refused(book, pod("p", 10, core=61)).code is Code.INSUFFICIENT_CORE


@pytest.mark.parametrize(
    ("mem", "core", "total", "code"),
    [(16, 0, 15, Code.TOO_LARGE), (1, 101, 100, Code.COMPUTE_TOO_LARGE)],
)
def test_more_than_a_gpu_has_is_never_cured(mem: int, core: int, total: int, code: Code) -> None:
    """A request over the size of every GPU is refused for good, with the size that is too small."""
    refusal = refused(ledger(share_node("n", make_gpus(15))), pod("p", mem, core=core))
    assert (refusal.code, refusal.unresolvable) == (code, True)
    assert refusal.gpus[0].total == total


def test_eviction_helps_where_a_gpu_would_be_large_enough() -> None:
    """One large GPU that is full is enough to make preemption worth while."""
    book = ledger(share_node("n", make_gpus(15, 5)), held("a", 15))
    refusal = refused(book, pod("p", 8))
    assert [gpu.code for gpu in refusal.gpus] == [Code.INSUFFICIENT_MEMORY, Code.TOO_LARGE]
    assert (refusal.code, refusal.unresolvable) == (Code.INSUFFICIENT_MEMORY, False)


def test_a_missing_isolation_mode_is_refused() -> None:
    """A pod that demands MPS is not run on a GPU without."""
    plain = refused(ledger(share_node("n", make_gpus(15))), pod("p", 1, annotations=MPS))
    assert (plain.code, plain.unresolvable) == (Code.ISOLATION_MODE_MISSING, True)
    gpu = msgspec.structs.replace(make_gpus(15).gpus[0], isolation=IsolationMode.MPS)
    book = ledger(share_node("n", Inventory((gpu,))))
    assert isinstance(on_node(book, "n", pod("p", 1, annotations=MPS)), Placement)
    assert isinstance(on_node(book, "n", pod("p", 1)), Placement)


def test_a_share_over_several_gpus_needs_gpus_without_mps() -> None:
    """Each GPU has its own daemon and a process reaches one: the node would refuse such a pod."""
    labels = {"aliyun.com/gpu-count": "2"}
    wide = pod("p", 8, labels=labels)
    assert isinstance(on_node(ledger(share_node("n", make_gpus(15, 15))), "n", wide), Placement)
    behind = Inventory(
        tuple(
            msgspec.structs.replace(gpu, isolation=IsolationMode.MPS)
            for gpu in make_gpus(15, 15).gpus
        )
    )
    refusal = refused(ledger(share_node("n", behind)), wide)
    assert (refusal.code, refusal.unresolvable) == (Code.ISOLATION_MODE_MISSING, True)


def test_mps_serves_48_clients() -> None:
    """The 49th pod is refused however small it is."""
    gpu = msgspec.structs.replace(make_gpus(100).gpus[0], isolation=IsolationMode.MPS)
    book = ledger(share_node("n", Inventory((gpu,))), *(held(f"p{i}", 1) for i in range(48)))
    refusal = refused(book, pod("p", 1))
    assert refusal.gpus == (DeviceFitError(GpuIndex(0), Code.MAX_PODS, 0, 48, 1),)
    book.pod_gone(pod("p0").uid)
    assert isinstance(on_node(book, "n", pod("p", 1)), Placement)


def test_a_mig_instance_is_never_sliced() -> None:
    """One pod has it, however little it requests."""
    gpu = msgspec.structs.replace(make_gpus(15).gpus[0], mig=True)
    book = ledger(share_node("n", Inventory((gpu,))), held("a", 1))
    assert refused(book, pod("p", 1)).code is Code.MAX_PODS


def test_the_label_limits_pods_a_gpu() -> None:
    """max-pod of the node, or the GPU's own limit if that is smaller."""
    labels = {wire_names.LABEL_MAX_POD: "2"}
    gpu = msgspec.structs.replace(make_gpus(15).gpus[0], isolation=IsolationMode.MPS)
    book = ledger(share_node("n", Inventory((gpu,)), labels=labels), held("a", 1), held("b", 1))
    assert refused(book, pod("p", 1)).gpus[0] == DeviceFitError(GpuIndex(0), Code.MAX_PODS, 0, 2, 1)


def test_oversell_is_an_explicit_multiple() -> None:
    """With ratio 2 a GPU of 15 gives 30, and not one more."""
    labels = {wire_names.LABEL_OVERSELL: "2"}
    book = ledger(share_node("n", make_gpus(15), labels=labels), held("a", 20))
    assert isinstance(on_node(book, "n", pod("p", 10)), Placement)
    assert refused(book, pod("p", 11)).code is Code.INSUFFICIENT_MEMORY


def test_a_whole_device_wants_an_empty_gpu() -> None:
    """A GPU with the smallest share on it is refused, an empty one taken."""
    book = ledger(share_node("n", make_gpus(15, 15)), held("a", 1))
    placement = on_node(book, "n", pod("p", 4, labels=WHOLE))
    assert isinstance(placement, Placement)
    assert placement.mem == {1: 4}
    book.pod_changed(held("b", 1, index=1))
    assert refused(book, pod("p", 4, labels=WHOLE)).code is Code.SHARED_GPU


def test_shares_and_whole_gpus_exclude_each_other() -> None:
    """A GPU with a share is not free for whole use, and the other way round."""
    book = ledger(share_node("n", make_gpus(15, 15), whole=True), held("a", 1))
    refusal = refused(book, pod("g", gpus=2))
    assert (refusal.code, refusal.requested, refusal.free, refusal.total) == (
        Code.INSUFFICIENT_GPUS, 2, 1, 2,
    )  # fmt: skip
    assert refusal.gpus == (DeviceFitError(GpuIndex(0), Code.SHARED_GPU, 14, 15, 15),)
    assert not refusal.unresolvable
    assert assumed(book, "n", pod("g", gpus=1)).placement.group == (1,)
    share = refused(book, pod("p", 15))
    assert [gpu.code for gpu in share.gpus] == [Code.INSUFFICIENT_MEMORY, Code.TAKEN_WHOLE]
    node_info = book.node(N)
    assert node_info is not None
    taken = exclusive_fit_error(node_info.devices[GpuIndex(1)], pod_request(pod("p", gpus=1)))
    assert taken == DeviceFitError(GpuIndex(1), Code.TAKEN_WHOLE)


def test_more_whole_gpus_than_are_healthy_is_never_cured() -> None:
    """Eviction does not heal GPUs."""
    book = ledger(share_node("n", make_gpus(15, 15), whole=True))
    book.unhealthy_changed(N, frozenset({GpuIndex(0)}))
    refusal = refused(book, pod("g", gpus=2))
    assert refusal.gpus == (DeviceFitError(GpuIndex(0), Code.UNHEALTHY),)
    assert refusal.unresolvable


def test_pending_units_are_kept_free() -> None:
    """What pods on unknown GPUs hold may be anywhere, so it is kept free on the node."""
    book = ledger(share_node("n", make_gpus(10, 10)), pod("stray", 6, node="n"))
    assert isinstance(on_node(book, "n", pod("p", 10)), Placement)
    book.pod_changed(held("a", 7))
    refusal = refused(book, pod("p", 8))
    assert (refusal.code, refusal.requested, refusal.free, refusal.total) == (
        Code.PENDING_UNITS, 8, 7, 6,
    )  # fmt: skip
    assert isinstance(on_node(book, "n", pod("p", 7)), Placement)


def test_pending_compute_is_kept_free() -> None:
    """Compute on unknown GPUs is kept free as memory is."""
    book = ledger(share_node("n", make_gpus(10)), pod("stray", core=60, node="n"))
    refusal = refused(book, pod("p", 1, core=50))
    assert (refusal.code, refusal.requested, refusal.free, refusal.total) == (
        Code.PENDING_COMPUTE, 50, 40, 60,
    )  # fmt: skip
    assert not refusal.unresolvable
    assert refused(book, pod("p", core=50)).code is Code.PENDING_COMPUTE
    assert isinstance(on_node(book, "n", pod("p", 1, core=40)), Placement)
    assert isinstance(on_node(book, "n", pod("p", 1)), Placement)


def test_memory_is_the_reason_where_memory_and_compute_are_pending() -> None:
    """The reason is about compute only where the memory of the node is enough."""
    book = ledger(share_node("n", make_gpus(10)), pod("stray", 6, core=60, node="n"))
    assert refused(book, pod("p", 5, core=50)).code is Code.PENDING_UNITS
    assert refused(book, pod("p", 4, core=50)).code is Code.PENDING_COMPUTE


def test_pending_memory_keeps_no_compute_free() -> None:
    """A share of compute alone needs none of the memory that is held on unknown GPUs."""
    book = ledger(share_node("n", make_gpus(10)), held("a", 9), pod("stray", 6, node="n"))
    assert isinstance(on_node(book, "n", pod("p", core=50)), Placement)
    assert refused(book, pod("p", 1, core=50)).code is Code.PENDING_UNITS


def test_pending_whole_gpus_are_kept_free() -> None:
    """Exclusive GPUs of unknown pods are missing from whole room and from share room."""
    book = ledger(share_node("n", make_gpus(10, 10), whole=True), pod("stray", gpus=1, node="n"))
    assert (book.free_gpu_counts[N], book.largest_shares[N]) == (1, 10)
    book.pod_changed(held("a", 1))
    assert (book.free_gpu_counts[N], book.largest_shares[N]) == (0, 9)
    book.pod_changed(held("b", 1, index=1))
    assert (book.free_gpu_counts[N], book.largest_shares[N]) == (0, 8)


@pytest.mark.parametrize("policy", ["binpack", "spread", "fragmentation"])
def test_a_share_leaves_the_last_empty_gpus_to_pods_with_exclusive_gpus(policy: str) -> None:
    """Those may have got them already, and the record of that is under way."""
    stray = pod("stray", gpus=1, node="n")
    book = ledger(share_node("n", make_gpus(10, 10, 10), whole=True), stray)
    for name, size, index in (("a", 1, 0), ("b", 4, 1)):
        book.pod_changed(held(name, size, index=index))
    found = on_node(book, "n", pod("p", 2), policy)
    assert isinstance(found, Placement)
    assert 2 not in found.mem


def test_a_mig_instance_is_no_empty_gpu_for_a_share_of_several_gpus() -> None:
    """One of the two others is that of the pod whose exclusive GPU is not known."""
    gpus = make_gpus(10, 10, 10)
    instance = msgspec.structs.replace(gpus.gpus[2], mig=True)
    gpus = msgspec.structs.replace(gpus, gpus=(*gpus.gpus[:2], instance))
    book = ledger(share_node("n", gpus, whole=True), pod("stray", gpus=1, node="n"))
    labels = TWO | {"ack.gpushare.placement": "require-whole-device"}
    refusal = refused(book, pod("p", 4, labels=labels))
    assert (refusal.code, refusal.requested, refusal.free) == (Code.INSUFFICIENT_GPUS, 2, 1)


def test_pending_whole_gpus_are_kept_free_of_compute() -> None:
    """A share of compute alone may get no GPU that another pod has exclusively."""
    stray = pod("stray", gpus=1, node="n")
    book = ledger(share_node("n", make_gpus(10), whole=True), stray)
    refusal = refused(book, pod("p", core=50))
    assert (refusal.code, refusal.requested, refusal.free, refusal.total) == (
        Code.PENDING_COMPUTE, 50, 0, 100,
    )  # fmt: skip
    book = ledger(share_node("n", make_gpus(10, 10), whole=True), stray)
    assert isinstance(on_node(book, "n", pod("p", core=50)), Placement)


@pytest.mark.parametrize("stray", [pod("stray", 6, node="n"), pod("stray", gpus=1, node="n")])
def test_what_is_pending_takes_gpus_that_a_share_would_have_to_itself(stray: Pod) -> None:
    """It may be on the GPUs that look empty, and the share would not be alone."""
    book = ledger(share_node("n", make_gpus(10, 10), whole=True), stray)
    assert isinstance(on_node(book, "n", pod("p", 2, labels=WHOLE)), Placement)
    book.pod_changed(held("a", 1, index=1))
    refusal = refused(book, pod("p", 2, labels=WHOLE))
    assert (refusal.code, refusal.requested, refusal.free, refusal.total) == (
        Code.INSUFFICIENT_GPUS, 1, 0, 2,
    )  # fmt: skip
    assert not refusal.unresolvable


def test_pending_units_take_exclusive_gpus() -> None:
    """Eleven pending units may sit on two GPUs of ten."""
    book = ledger(share_node("n", make_gpus(10, 10, 10), whole=True), pod("stray", 11, node="n"))
    assert book.free_gpu_counts[N] == 1


def test_pending_compute_takes_exclusive_gpus() -> None:
    """Compute of 110 percent is on two GPUs; with memory beside it, on no more than those."""
    gpus = share_node("n", make_gpus(10, 10, 10), whole=True)
    strays = [pod(f"stray{core}", mem, core=core, node="n") for mem, core in ((0, 50), (2, 60))]
    book = ledger(gpus, *strays)
    assert book.free_gpu_counts[N] == 1
    assert isinstance(on_node(book, "n", pod("g", gpus=1)), Placement)
    assert refused(book, pod("g", gpus=2)).code is Code.INSUFFICIENT_GPUS


def test_what_is_over_full_is_somewhere_else() -> None:
    """Two equal pods recorded on one GPU: the other GPU is not free until they are sorted."""
    book = ledger(share_node("n", make_gpus(4, 4)), held("a", 4), held("b", 4))
    assert book.largest_shares[N] == 0
    assert refused(book, pod("p", 1)).code is Code.PENDING_UNITS


def test_whole_gpus_listed_twice_leave_less_room() -> None:
    """Two pods that name the same exclusive GPU have two GPUs between them."""
    group = {NAMES.group: "0"}
    pods = (pod(name, gpus=1, node="n", annotations=group) for name in "ab")
    book = ledger(share_node("n", make_gpus(4, 4), whole=True), *pods)
    assert (book.free_gpu_counts[N], book.largest_shares[N]) == (0, 0)


@pytest.mark.parametrize(
    ("node", "requested", "code"),
    [
        (Node(N), pod("p", 1), Code.NOT_SHARED),
        (Node(N), pod("p", gpus=1), Code.NOT_SHARED),
        (share_node("n", make_gpus(15)), pod("p", gpus=1), Code.NOT_SHARED),
        (Node(N, capacity={NAMES.gpu: "2"}), pod("p", 1), Code.NOT_SHARED),
        (Node(N, capacity={NAMES.gpu_mem: "30"}), pod("p", 1), Code.NO_INVENTORY),
        (share_node("n", make_gpus(15)), pod("p", 1, labels=NO_COUNT), Code.INVALID_REQUEST),
        (share_node("n", make_gpus(15, 15)), pod("p", 3, labels=TWO), Code.UNEVEN_SPLIT),
        (share_node("n", make_gpus(15, 15)), pod("p", 4, core=5, labels=TWO), Code.UNEVEN_SPLIT),
    ],
)  # fmt: skip
def test_refusals_that_no_eviction_cures(node: Node, requested: Pod, code: Code) -> None:
    """The node, or the request, is not of the kind."""
    refusal = refused(ledger(node), requested)
    assert (refusal.code, refusal.unresolvable, refusal.gpus) == (code, True, ())


def test_an_empty_inventory_offers_nothing() -> None:
    """A node whose inventory has no GPUs has no inventory to place on."""
    node = msgspec.structs.replace(share_node("n", make_gpus()), capacity={NAMES.gpu_mem: "1"})
    assert refused(ledger(node), pod("p", 1)).code is Code.NO_INVENTORY


@pytest.mark.parametrize("requested", [pod("p", 1), pod("p", core=5), pod("p", gpus=1)])
def test_a_node_whose_plugin_is_away_takes_nothing(requested: Pod) -> None:
    """While the plugin is replaced kubelet admits no pod: refused until it is back."""
    inventory = msgspec.structs.replace(make_gpus(15, 15), serving=False)
    both = {NAMES.gpu_mem: "30", NAMES.gpu: "2"}
    away = msgspec.structs.replace(share_node("n", inventory), capacity=both)
    refusal = refused(ledger(away), requested)
    assert (refusal.code, refusal.unresolvable) == (Code.PLUGIN_AWAY, True)
    assert filter_nodes(ledger(away), pod_request(requested), [NodeName("n")])[0] == []
    back = msgspec.structs.replace(share_node("n", make_gpus(15, 15)), capacity=both)
    assert isinstance(on_node(ledger(back), "n", requested), Placement)


def test_several_gpus_take_a_part_each() -> None:
    """With gpu-count 2, each of two GPUs gives half; one such GPU is too few."""
    labels = {NAMES.gpu_count: "2"}
    book = ledger(share_node("n", make_gpus(6, 6, 6)), held("a", 2), held("b", 4, index=1))
    placement = on_node(book, "n", pod("p", (3, 5), labels=labels))
    assert isinstance(placement, Placement)
    assert placement.mem == {0: 4, 2: 4}
    assert placement.containers == {0: {0: 2, 2: 1}, 1: {0: 2, 2: 3}}
    refusal = refused(book, pod("p", 10, labels=labels))
    assert (refusal.code, refusal.requested, refusal.free, refusal.total) == (
        Code.INSUFFICIENT_MEMORY, 5, 1, 2,
    )  # fmt: skip
    few = refused(ledger(share_node("n", make_gpus(6))), pod("p", 2, labels=labels))
    assert (few.code, few.gpus, few.unresolvable) == (Code.INSUFFICIENT_GPUS, (), True)


def test_sift_splits_names_in_order() -> None:
    """Names that fit come back in their order; the others have a refusal each, once."""
    book = ledger(legacy_node("a", 30, 2), legacy_node("b", 8, 1), legacy_node("c", 15, 1))
    names = [NodeName(n) for n in ("c", "x", "b", "a", "b")]
    fits, refusals = filter_nodes(book, pod_request(pod("p", 10)), names)
    assert fits == ["c", "a"]
    assert {name: refusal.code for name, refusal in refusals.items()} == {
        "x": Code.NODE_UNKNOWN,
        "b": Code.TOO_LARGE,
    }
    assert len(refusals) == 2
    with pytest.raises(KeyError):
        refusals[NodeName("a")]


def test_sift_of_an_impossible_request_refuses_every_node() -> None:
    """A request with a fault fits nowhere, however much room there is."""
    book = ledger(legacy_node("a", 30, 2))
    wanted = pod_request(pod("p", 1, labels={NAMES.gpu_count: "x"}))
    fits, refusals = filter_nodes(book, wanted, [NodeName("a")])
    assert fits == []
    assert refusals[NodeName("a")].code is Code.INVALID_REQUEST


def test_fit_reserves_nothing() -> None:
    """Asking twice gives the same answer."""
    book = ledger(legacy_node("n", 15, 1))
    node_info = book.node(N)
    assert node_info is not None
    wanted = pod_request(pod("p", 15))
    assert fit(node_info, wanted) is None
    assert fit(node_info, wanted) is None
