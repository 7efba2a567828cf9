"""Annotations are corrected to what kubelet handed out, once, and with a reason."""

from msgspec.structs import replace
from nodepods import machine, make_pod, plan

from gpucore.model import Inventory
from gpucore.node.allocation.device_ids import Resource, device_table
from gpucore.node.allocation.holdings import Held
from gpucore.node.reconcile.corrections import (
    ADOPTED,
    CORRECTED,
    Correction,
    CorrectionInput,
    corrections,
)
from gpucore.wire import names as wire_names
from gpucore.wire.names import DEFAULT_NAMES
from gpucore.wire.pod.allocations import allocation_of
from gpucore.wire.pod.spec import Pod

INVENTORY = machine(15, 15, 15)
NOW = 1_800_000_000_000_000_000


def truth(inventory: Inventory = INVENTORY) -> CorrectionInput:
    tables = {each: device_table(inventory, each) for each in Resource}
    return CorrectionInput(inventory, tables, DEFAULT_NAMES, NOW)


def held(name: str, *containers: dict[int, int], resource: Resource = Resource.MEM) -> Held:
    """Containers with so many ids on GPUs."""
    table = device_table(INVENTORY, resource)
    rows = {
        f"c{place}": {resource: tuple(i for c, n in on.items() for i in table.ids[c][:n])}  # type: ignore[index]
        for place, on in enumerate(containers)
        if on
    }
    return Held("default", name, rows)


def applied(pod: Pod, correction: Correction) -> Pod:
    merged: dict[str, str | None] = dict(pod.annotations) | dict(correction.annotations)
    return replace(pod, annotations={k: v for k, v in merged.items() if v is not None})


def only(found: list[Correction]) -> Correction:
    assert len(found) == 1
    return found[0]


def test_a_pod_on_its_planned_gpu_just_becomes_assigned() -> None:
    """The plan was kept: ASSIGNED is written without an event, and then nothing more."""
    pod = make_pod("p", {"gpu-mem": 3}, annotations=plan(1, 3))
    correction = only(corrections([held("p", {1: 3})], [pod], truth()))
    assert correction.reason == ""
    assert correction.annotations[DEFAULT_NAMES.mem_assigned] == "true"
    assert DEFAULT_NAMES.mem_idx not in correction.annotations
    assert corrections([held("p", {1: 3})], [applied(pod, correction)], truth()) == []


def test_a_group_keeps_its_order() -> None:
    """Kubelet reports which GPUs, not in which order they were handed out: that of the plan."""
    pod = make_pod("p", {"gpu": 3}, annotations={DEFAULT_NAMES.group: "2,0,1"})
    given = held("p", {0: 1, 1: 1, 2: 1}, resource=Resource.GPU)
    correction = only(corrections([given], [pod], truth()))
    assert correction.reason == ""
    assert DEFAULT_NAMES.group not in correction.annotations
    other = make_pod("q", {"gpu": 2}, annotations={DEFAULT_NAMES.group: "2,0"})
    swapped = held("q", {1: 1, 2: 1}, resource=Resource.GPU)
    changed = only(corrections([swapped], [other], truth()))
    assert changed.reason == CORRECTED
    assert changed.annotations[DEFAULT_NAMES.group] == "2,1"


def test_a_swapped_pod_is_corrected_and_an_event_explains_it() -> None:
    """Planned for GPU 1, on GPU 0: the index and the map follow, and the event reports it."""
    pod = make_pod("p", {"gpu-mem": 3}, annotations=plan(1, 3))
    correction = only(corrections([held("p", {0: 3})], [pod], truth()))
    assert correction.reason == CORRECTED
    assert correction.message == "planned for GPU 1, kubelet allocated GPU 0"
    allocation = allocation_of(applied(pod, correction), DEFAULT_NAMES)
    assert allocation is not None
    assert allocation.placement.mem == {0: 3}
    assert allocation.state == "confirmed"
    assert allocation.assume_time == 17


def test_a_pod_that_was_inherited_is_left_as_it_is() -> None:
    """Kubelet's ids of it meant nothing; the annotation is true."""
    pod = make_pod("p", {"gpu-mem": 3}, annotations=plan(1, 3))
    inherited = frozenset({("default", "p")})
    assert corrections([held("p", {0: 3})], [pod], replace(truth(), inherited=inherited)) == []


def test_a_pod_whose_init_containers_alone_request_gpus_needs_a_plan_to_be_confirmed() -> None:
    """Kubelet does not list what they had; without a plan nobody knows the GPU."""
    unplanned = make_pod("p", {}, inits=[{"gpu-mem": 3}])
    planned = make_pod("p", {}, inits=[{"gpu-mem": 3}], annotations=plan(1, 3))
    nothing = Held("default", "p", {})
    assert corrections([nothing], [replace(unplanned, phase="Running")], truth()) == []
    (found,) = corrections([nothing], [replace(planned, phase="Running")], truth())
    assert found.annotations[DEFAULT_NAMES.mem_assigned] == "true"
    assert corrections([nothing], [replace(planned, phase="Pending")], truth()) == []


def test_an_adopted_pod_has_no_gpu_to_itself() -> None:
    """No scheduler kept the GPU free for it, so its label cannot take what its neighbours hold."""
    whole = {wire_names.LABEL_REQUIRE_WHOLE: wire_names.REQUIRE_WHOLE_DEVICE}
    pod = make_pod("p", {"gpu-mem": 3}, labels=whole)
    correction = only(corrections([held("p", {0: 3})], [pod], truth()))
    assert correction.annotations[wire_names.EXCLUSIVE] == "false"
    planned = make_pod("q", {"gpu-mem": 3}, annotations=plan(1, 3), labels=whole)
    correction = only(corrections([held("q", {1: 3})], [planned], truth()))
    assert correction.annotations[wire_names.EXCLUSIVE] == "true"


def test_a_pod_that_bypassed_the_scheduler_is_adopted() -> None:
    """Without a plan the pod gets all annotations, dated now."""
    pod = make_pod("p", {"gpu-mem": 2}, {"gpu-mem": 1})
    correction = only(corrections([held("p", {2: 2}, {2: 1})], [pod], truth()))
    assert correction.reason == ADOPTED
    allocation = allocation_of(applied(pod, correction), DEFAULT_NAMES)
    assert allocation is not None
    assert allocation.placement.containers == {0: {2: 2}, 1: {2: 1}}
    assert allocation.assume_time == NOW


def test_an_assigned_pod_whose_annotation_was_edited_is_corrected() -> None:
    """Somebody changed the index of a running pod: it is set back to the truth."""
    pod = make_pod("p", {"gpu-mem": 3}, annotations=plan(1, 3), phase="Running")
    first = applied(pod, only(corrections([held("p", {1: 3})], [pod], truth())))
    edited = replace(
        first, annotations=first.annotations | {wire_names.V2_ALLOCATION: '{"0":{"2":3}}'}
    )
    correction = only(corrections([held("p", {1: 3})], [edited], truth()))
    assert correction.message == "the annotations named GPU 2, kubelet allocated GPU 1"


def test_an_older_map_that_lies_is_removed() -> None:
    """A V3 map would be believed before ours, so a wrong one goes."""
    lie = {wire_names.V3_MEMORY: '{"0":{"2":3}}'}
    pod = make_pod("p", {"gpu-mem": 3}, annotations=lie)
    correction = only(corrections([held("p", {1: 3})], [pod], truth()))
    assert correction.annotations[wire_names.V3_MEMORY] is None


def test_a_pod_is_left_alone_until_all_its_containers_have_all_they_ask() -> None:
    """In the middle of an admission nothing is written."""
    pod = make_pod("p", {"gpu-mem": 2}, {"gpu-mem": 1})
    assert corrections([held("p", {2: 2})], [pod], truth()) == []


def test_what_only_an_init_container_needed_stays_on_the_gpu() -> None:
    """Effective amount 5, containers 2: all 5 are held on the GPU, as kubelet holds them."""
    pod = make_pod("p", {"gpu-mem": 2}, inits=[{"gpu-mem": 5}], annotations=plan(1, 5))
    correction = only(corrections([held("p", {1: 2})], [pod], truth()))
    assert correction.reason == ""
    allocation = allocation_of(applied(pod, correction), DEFAULT_NAMES)
    assert allocation is not None
    assert allocation.placement.mem == {1: 5}


def test_whole_gpus_are_corrected_in_the_group() -> None:
    """A group that differs from the GPUs that were taken is rewritten."""
    pod = make_pod("p", {"gpu": 2}, annotations={DEFAULT_NAMES.group: "0,1"})
    holding = held("p", {1: 1, 2: 1}, resource=Resource.GPU)
    correction = only(corrections([holding], [pod], truth()))
    assert correction.annotations[DEFAULT_NAMES.group] == "1,2"
    assert correction.annotations[DEFAULT_NAMES.group_assigned] == "true"
    assert correction.message == ("planned for GPUs 0 and 1, kubelet allocated GPUs 1 and 2")


def test_pods_that_hold_nothing_or_ended_or_ask_nothing_are_left_alone() -> None:
    """No correction without a holding, after the end, or without a request."""
    pods = [
        make_pod("a", {"gpu-mem": 3}, annotations=plan(1, 3)),
        make_pod("b", {"gpu-mem": 3}, annotations=plan(1, 3), phase="Succeeded"),
        make_pod("c", {}),
        make_pod("d", {"gpu-mem": "many"}),
    ]
    holdings = [held("b", {0: 3}), held("c", {0: 3}), held("d", {0: 3})]
    assert corrections(holdings, pods, truth()) == []
