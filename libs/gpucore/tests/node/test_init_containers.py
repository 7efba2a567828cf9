"""Pods of which only init containers or sidecars ask for GPUs are confirmed and corrected."""

from collections.abc import Mapping

import pytest
from msgspec.structs import replace
from nodepods import expected, machine, make_pod, plan

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
from gpucore.wire.names import DEFAULT_NAMES as NAMES
from gpucore.wire.pod.allocations import allocation_of
from gpucore.wire.pod.spec import Pod

INVENTORY = machine(15, 15, 15)
TABLES = {each: device_table(INVENTORY, each) for each in Resource}
TRUTH = CorrectionInput(INVENTORY, TABLES, NAMES, 17)


def held(rows: Mapping[str, range], gpu: int, resource: Resource = Resource.MEM) -> Held:
    """Containers with ids of one GPU, by their numbers."""
    ids = TABLES[resource].ids[gpu]  # type: ignore[index]
    given = {name: {resource: tuple(ids[n] for n in numbers)} for name, numbers in rows.items()}
    return Held("default", "p", given)


def correction(pod: Pod, *rows: Held) -> Correction:
    """The only correction of the pod."""
    (found,) = corrections(rows, [pod], TRUTH)
    return found


def applied(pod: Pod, found: Correction) -> Pod:
    """The pod after the patch."""
    merged = dict(pod.annotations) | dict(found.annotations)
    return replace(pod, annotations={key: text for key, text in merged.items() if text})


def test_a_sidecars_share_is_in_the_allocation_map() -> None:
    """The row of a sidecar follows those of the containers, and the map is read back as true."""
    pod = make_pod("p", {"gpu-mem": 2}, sidecars=[{"gpu-mem": 3}], annotations=plan(1, 5))
    given = held({"c0": range(2), "s0": range(2, 5)}, 1)
    found = correction(pod, given)
    assert found.annotations[wire_names.V2_ALLOCATION] == '{"0":{"1":2},"1":{"1":3}}'
    allocation = allocation_of(applied(pod, found), NAMES)
    assert allocation is not None
    assert (dict(allocation.placement.mem), allocation.pending, allocation.faults) == (
        {1: 5},
        0,
        (),
    )
    assert corrections([given], [applied(pod, found)], TRUTH) == []


def test_a_map_without_the_sidecars_of_an_older_scheduler_is_no_fault() -> None:
    """It is counted at all that the pod requests."""
    text = {wire_names.V2_ALLOCATION: '{"0":{"1":2}}'}
    pod = make_pod("p", {"gpu-mem": 2}, sidecars=[{"gpu-mem": 3}], annotations=text)
    allocation = allocation_of(pod, NAMES)
    assert allocation is not None
    assert (dict(allocation.placement.mem), allocation.faults) == ({1: 5}, ())


def test_a_pod_whose_only_requester_is_a_sidecar_is_confirmed_and_corrected() -> None:
    """Kubelet lists devices of sidecars: a kept plan is confirmed, another GPU is written."""
    pod = make_pod("p", {}, sidecars=[{"gpu-mem": 3}], annotations=plan(1, 3))
    kept = correction(pod, held({"s0": range(3)}, 1))
    assert (kept.reason, kept.annotations[NAMES.mem_assigned]) == ("", "true")
    moved = correction(pod, held({"s0": range(3)}, 2))
    assert (moved.reason, moved.annotations[NAMES.mem_idx]) == (CORRECTED, "2")


def test_a_pod_is_left_alone_until_its_sidecar_has_its_devices() -> None:
    """Half of a pod proves nothing about the whole."""
    pod = make_pod("p", {"gpu-mem": 2}, sidecars=[{"gpu-mem": 3}], annotations=plan(1, 5))
    assert corrections([held({"c0": range(2)}, 1)], [pod], TRUTH) == []


@pytest.mark.parametrize(
    ("resource", "ask", "key"),
    [
        (Resource.MEM, {"gpu-mem": 3}, NAMES.mem_idx),
        (Resource.GPU, {"gpu": 1}, NAMES.group),
    ],
)
def test_a_pod_whose_only_requester_is_an_init_container_is_confirmed(
    resource: Resource, ask: dict[str, int], key: str
) -> None:
    """What the plugin gave an init container counts, since kubelet does not list it."""
    pod = make_pod("p", {}, inits=[ask])
    found = correction(pod, held({"i0": range(next(iter(ask.values())))}, 2, resource))
    assert (found.reason, found.annotations[key]) == (ADOPTED, "2")
    allocation = allocation_of(applied(pod, found), NAMES)
    assert allocation is not None
    assert (allocation.state, allocation.pending, allocation.pending_gpus) == ("confirmed", 0, 0)


@pytest.mark.parametrize("mem", [{}, {"gpu-mem": 2}], ids=["no memory", "memory"])
def test_an_empty_map_of_an_init_containers_compute_is_no_edit(mem: dict[str, int]) -> None:
    """The extender writes it where no container requests compute; nothing is found or corrected."""
    pod = make_pod("p", mem, inits=[{"gpu-core.percentage": 30}], annotations=plan(1, 2))
    written = {wire_names.V3_CORE_PERCENTAGE: "{}"}
    pod = replace(pod, annotations={**pod.annotations, **written}, phase="Running")
    allocation = allocation_of(pod, NAMES)
    assert allocation is not None
    assert (dict(allocation.placement.core), allocation.faults) == ({1: 30}, ())
    assert allocation.pending_core == 0


@pytest.mark.parametrize(
    ("core", "text"), [({"gpu-core.percentage": 20}, "{}"), ({}, "{ }"), ({}, '{"0":{}}')]
)
def test_a_map_that_the_extender_does_not_write_is_an_edit(core: dict[str, int], text: str) -> None:
    """An empty one where a container requests compute, or another text without a GPU."""
    texts = plan(1) | {wire_names.V3_CORE_PERCENTAGE: text}
    pod = make_pod("p", core, inits=[{"gpu-core.percentage": 30}], annotations=texts)
    allocation = allocation_of(pod, NAMES)
    assert allocation is not None
    fault = f"annotation {wire_names.V3_CORE_PERCENTAGE} does not name a GPU"
    assert allocation.faults == (fault,)
    assert dict(allocation.placement.core) == {1: 30}


def test_an_init_container_that_kubelet_does_not_list_keeps_its_plan_once_the_pod_runs() -> None:
    """After a restart of the plugin nobody can tell the GPU; that kubelet gave it is certain."""
    pod = make_pod("p", {}, inits=[{"gpu-mem": 3}], annotations=plan(1, 3))
    nothing = Held("default", "p", {})
    assert corrections([nothing], [pod], TRUTH) == []
    found = correction(replace(pod, phase="Running"), nothing)
    assert (found.reason, found.annotations[NAMES.mem_assigned]) == ("", "true")
    assert corrections([], [replace(pod, phase="Running")], TRUTH) == []


def test_containers_that_use_an_init_containers_devices_again_count_once() -> None:
    """The init container needed more: all its devices stay with the pod until it ends."""
    pod = make_pod("p", {"gpu-mem": 2}, inits=[{"gpu-mem": 6}], annotations=plan(1, 6))
    found = correction(pod, held({"i0": range(6), "c0": range(2)}, 1))
    allocation = allocation_of(applied(pod, found), NAMES)
    assert allocation is not None
    assert (found.reason, dict(allocation.placement.mem)) == ("", {1: 6})


def test_a_sidecar_has_a_plan_of_its_own() -> None:
    """Its GPUs follow those of the containers in the map and in the group."""
    text = {wire_names.V2_ALLOCATION: '{"0":{"0":2},"1":{"2":3}}'}
    pod = expected("p", {"gpu-mem": 2}, sidecars=[{"gpu-mem": 3}], annotations=text)
    assert [(s.container, s.init, dict(s.plan[Resource.MEM])) for s in pod.steps] == [
        ("s0", True, {2: 3}),
        ("c0", False, {0: 2}),
    ]
    group = expected("p", {"gpu": 1}, sidecars=[{"gpu": 1}], annotations={NAMES.group: "2,0"})
    assert [(s.container, list(s.plan[Resource.GPU])) for s in group.steps] == [
        ("s0", [0]),
        ("c0", [2]),
    ]
