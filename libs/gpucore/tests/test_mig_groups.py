"""A container with several GPUs gets no MIG instance: CUDA shows no GPU beside one."""

import msgspec
import pytest
from corebuilders import (
    NAMES,
    assumed,
    ledger,
    limits,
    make_gpus,
    on_node,
    pod,
    pod_request,
    share_node,
)
from hypothesis import given
from hypothesis import strategies as st

from gpucore.accounting.ledger import Ledger
from gpucore.explain.groups import figures, grouped
from gpucore.explain.sentences import sentence
from gpucore.explain.suggestions import suggest
from gpucore.model import Code, DeviceFitError, FitError, Inventory, Placement
from gpucore.model.constraints import CandidateNode
from gpucore.scheduling.candidates import Candidates, PodRequirements
from gpucore.scheduling.filter import filter_nodes
from gpucore.scheduling.fit import fit, fits
from gpucore.simulate.defrag import Goal, defragment
from gpucore.steps import complete
from gpucore.units import GpuIndex, NodeName
from gpucore.wire.pod.spec import Container, Pod

N = NodeName("n")
TWO = {NAMES.gpu_count: "2"}


def mixed(instances: str, *units: int) -> Inventory:
    """GPUs of these sizes, of which those with an ``m`` are MIG instances."""
    plain = make_gpus(*(units or (16,) * len(instances)))
    gpus = zip(plain.gpus, instances, strict=True)
    replaced = (msgspec.structs.replace(gpu, mig=kind == "m") for gpu, kind in gpus)
    return msgspec.structs.replace(plain, gpus=tuple(replaced))


def mixed_ledger(instances: str, *pods: Pod) -> Ledger:
    """A ledger of node n with these GPUs."""
    return ledger(share_node("n", mixed(instances), whole=True), *pods)


def of_containers(*gpus: int, init: int = 0) -> Pod:
    """A pod whose containers request so many exclusive GPUs each."""
    containers = tuple(Container(name=f"c{i}", limits=limits(gpus=n)) for i, n in enumerate(gpus))
    inits = (Container(name="i", limits=limits(gpus=init)),) if init else ()
    return msgspec.structs.replace(pod("p"), containers=containers, init_containers=inits)


def refused(book: Ledger, requested: Pod) -> FitError:
    """Why node n does not fit the pod."""
    refusal = on_node(book, "n", requested)
    assert isinstance(refusal, FitError)
    return refusal


def group(book: Ledger, requested: Pod) -> tuple[int, ...]:
    """The GPUs of node n that the pod would get."""
    placement = on_node(book, "n", requested)
    assert isinstance(placement, Placement)
    return placement.group or tuple(placement.mem)


@pytest.mark.parametrize(
    ("requested", "gpus"),
    [
        (pod("p", gpus=2), (1, 3)),
        (of_containers(2), (1, 3)),
        (of_containers(1, init=2), (1, 3)),
        (of_containers(1, 1), (0, 1)),
        (pod("p", gpus=1), (0,)),
        (pod("p", 8, labels=TWO), (1, 3)),
        (pod("p", 8), (0,)),
    ],
)
def test_several_gpus_of_a_container_are_gpus_without_mig(
    requested: Pod, gpus: tuple[int, ...]
) -> None:
    """Containers of one GPU each may have MIG instances, and so may a share of one."""
    assert group(mixed_ledger("mGmG"), requested) == gpus


def test_the_reason_names_the_mig_instances() -> None:
    """No eviction helps a node that has too few GPUs without MIG."""
    book = mixed_ledger("Gmm")
    refusal = refused(book, pod("p", gpus=2))
    assert (refusal.code, refusal.unresolvable) == (Code.MIG_INSTANCE, True)
    assert (refusal.requested, refusal.free, refusal.total) == (2, 1, 3)
    assert refusal.gpus == tuple(DeviceFitError(GpuIndex(i), Code.MIG_INSTANCE) for i in (1, 2))
    assert sentence(refusal) == (
        "The GPU is a MIG instance, and a process uses no GPU beside a MIG instance: requested 2, "
        "1 of 3 GPUs are free: GPU 1 is a MIG instance, GPU 2 is a MIG instance"
    )
    shares = refused(book, pod("p", 8, labels=TWO))
    assert (shares.code, shares.unresolvable) == (Code.MIG_INSTANCE, True)
    assert (shares.requested, shares.free, shares.total) == (2, 1, 3)


def test_a_node_whose_gpus_without_mig_are_in_use_is_worth_waiting_for() -> None:
    """The reason is that too few GPUs are free, and preemption may help."""
    refusal = refused(mixed_ledger("GGm", holding("a", 0)), pod("p", gpus=2))
    assert (refusal.code, refusal.unresolvable) == (Code.INSUFFICIENT_GPUS, False)
    assert (refusal.free, refusal.total) == (1, 3)


def holding(name: str, *gpus: int) -> Pod:
    """A pod that has these GPUs of node n whole."""
    return pod(name, gpus=len(gpus), node="n", annotations={NAMES.group: ",".join(map(str, gpus))})


def test_a_node_of_instances_only_is_explained_with_the_remedy() -> None:
    """Groups of nodes give the reason in words, and suggestions what to do."""
    book = mixed_ledger("mmm")
    requested = PodRequirements(pod_request(pod("p", gpus=2)))
    cluster = Candidates(book.nodes(), {N: CandidateNode(N)})
    refusals = {N: refused(book, pod("p", gpus=2))}
    found = complete(grouped(refusals, book.nodes()))
    assert [(one.code, one.largest, one.requested, one.measure) for one in found] == [
        (Code.MIG_INSTANCE, 0, 2, "gpus")
    ]
    assert figures(found[0]) == Code.MIG_INSTANCE.sentence.rstrip(".")
    helps = complete(suggest(requested, cluster, refusals))
    assert "no node has 2 healthy GPUs without MIG" in helps


def test_defragmentation_frees_gpus_without_mig() -> None:
    """A free MIG instance does not count; the pod on the second GPU moves to it."""
    one = holding("a", 1)
    book = mixed_ledger("GGm", one)
    plan = defragment(book.nodes(), {one.uid: pod_request(one)}, Goal(gpus=2))
    assert plan is not None
    assert plan.gpus == (0, 1)
    assert [move.to.group for move in plan.moves] == [(2,)]


@given(
    kinds=st.text("Gm", min_size=1, max_size=6),
    used=st.lists(st.tuples(st.integers(0, 5), st.integers(1, 16)), max_size=4),
    containers=st.lists(st.integers(0, 3), min_size=1, max_size=3).filter(any),
    shares=st.booleans(),
)
def test_no_placement_combines_a_mig_instance(
    kinds: str, used: list[tuple[int, int]], containers: list[int], shares: bool
) -> None:
    """Whatever is in use: every decision about the node agrees, and counts the same GPUs."""
    book = mixed_ledger(kinds)
    for number, (index, units) in enumerate(used):
        holder = {NAMES.mem_idx: str(index)}
        book.pod_changed(pod(f"u{number}", units, node="n", annotations=holder))
    count = sum(containers)
    labels = {NAMES.gpu_count: str(count)}
    requested = pod("p", count, labels=labels) if shares else of_containers(*containers)
    combines = count > 1 if shares else max(containers) > 1
    request, info = pod_request(requested), book.nodes()[N]
    assert request.combines_gpus is combines
    fitting, _ = filter_nodes(book, request, [N])
    found = on_node(book, "n", requested)
    assert [bool(fitting), fits(info, request), fit(info, request) is None] == [
        isinstance(found, Placement)
    ] * 3
    if isinstance(found, FitError):
        usable = [gpu for gpu, kind in enumerate(kinds) if not (combines and kind == "m")]
        assert (found.code is Code.MIG_INSTANCE) <= (len(usable) < count)
        return
    assumed(book, "n", requested)
    gpus = found.group or tuple(found.mem)
    assert len(gpus) == count
    assert not (combines and any(kinds[gpu] == "m" for gpu in gpus))
