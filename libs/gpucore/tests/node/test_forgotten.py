"""Devices that live pods hold although kubelet forgot it are not handed out again."""

from msgspec.structs import replace
from nodepods import Kubelet, expected, machine, make_pod, matcher, plan

from gpucore.node.allocation.allocation_error import AllocationError, AllocationErrorCode
from gpucore.node.allocation.device_ids import Resource
from gpucore.node.allocation.holdings import Held, Holder
from gpucore.node.allocation.matcher import AllocationMatcher, Granted
from gpucore.node.reconcile.forgotten import (
    Rows,
    allocated,
    forgotten,
    restarting,
    with_inits,
)
from gpucore.units import GpuIndex
from gpucore.wire import names as wire_names
from gpucore.wire.names import DEFAULT_NAMES as NAMES
from gpucore.wire.pod.spec import Pod

INVENTORY = machine(15, 15)


def running(name: str, gpu: int, amount: int, **more: object) -> Pod:
    """A running pod whose share of a GPU is confirmed."""
    texts = plan(gpu, amount) | {NAMES.mem_assigned: "true"}
    return make_pod(name, {"gpu-mem": amount}, annotations=texts, phase="Running", **more)  # type: ignore[arg-type]


def rows_of(node: AllocationMatcher, pod: Pod) -> Rows:
    """What stands for the pod's devices."""
    found = allocated([pod], NAMES, node.tables, node.holdings)
    return found[0].containers if found else {}


def nothing(name: str) -> Held:
    """Kubelet lists the pod, without devices."""
    return Held("default", name, {})


def test_a_running_pod_without_devices_is_forgotten() -> None:
    """Kubelet lists it, gave it devices once, and knows of none now."""
    pod = running("p", 0, 3)
    assert forgotten([nothing("p")], [pod], NAMES) == {pod.uid}


def test_a_pod_that_kubelet_has_yet_to_give_devices_or_to_list_is_not() -> None:
    """Before admission, before confirmation, after its end, or before kubelet knows its pods."""
    pod = running("p", 0, 3)
    waiting = replace(pod, phase="Pending")
    unconfirmed = replace(pod, annotations=plan(0, 3))
    ended = replace(pod, phase="Succeeded")
    init_only = make_pod("p", {}, inits=[{"gpu-mem": 3}], annotations=pod.annotations)
    for each in (waiting, unconfirmed, ended, replace(init_only, phase="Running")):
        assert forgotten([nothing("p")], [each], NAMES) == set()
    assert forgotten([], [pod], NAMES) == set()
    has = Held("default", "p", {"c0": {Resource.MEM: ("GPU-0-_-1",)}})
    assert forgotten([has], [pod], NAMES) == set()


def test_a_running_pod_stays_forgotten_until_all_its_containers_have_devices() -> None:
    """One of them has restarted, and kubelet lists it alone; the other runs on."""
    texts = plan(0, 8) | {NAMES.mem_assigned: "true"}
    pod = make_pod("p", {"gpu-mem": 4}, {"gpu-mem": 4}, annotations=texts, phase="Running")
    node = matcher(INVENTORY)
    has = Held("default", "p", {"c1": {Resource.MEM: node.tables[Resource.MEM].ids[GpuIndex(0)]}})
    one = Held("default", "p", {"c1": {Resource.MEM: has.containers["c1"][Resource.MEM][:4]}})
    assert forgotten([one], [pod], NAMES) == {pod.uid}
    assert [s.container for p in restarting([one], [pod], NAMES) for s in p.steps] == ["c0"]
    [held] = allocated([pod], NAMES, node.tables, node.holdings, listed=[one])
    assert {name: len(row[Resource.MEM]) for name, row in held.containers.items()} == {"c0": 4}
    both = Held("default", "p", {"c0": {}, **one.containers})
    assert forgotten([both], [pod], NAMES) == set()
    assert restarting([], [pod], NAMES) == []
    assert restarting([one], [replace(pod, phase="Pending")], NAMES) == []


def restarted(*pods: Pod) -> Kubelet:
    """A kubelet that has lost its record of these pods."""
    node = matcher(INVENTORY)
    lost = allocated(pods, NAMES, node.tables, node.holdings)
    node.sync_from_kubelet(lost, requested_at=0)
    node.reserve(lost)
    node.restarting = restarting([nothing(pod.name) for pod in pods], pods, NAMES)
    return Kubelet(node)


def test_a_container_that_restarts_gets_the_devices_that_are_reserved_for_it() -> None:
    """Without them its GPU has too few; nobody else gets them, nor a call for another amount."""
    kubelet = restarted(running("p", 0, 8), running("q", 1, 9))
    other = kubelet.take(7)
    assert (dict(other.gpus), other.turn) == ({0: 7}, None)
    own = kubelet.matcher.holdings.rows_of(Holder("default", "p", "c0"))[Resource.MEM]
    granted = kubelet.take(8)
    assert set(granted.ids) == set(own)
    assert (granted.turn.pod.name, granted.turn.step.container) == ("p", "c0")
    assert isinstance(kubelet.take(8), AllocationError)


def test_a_reserved_device_that_kubelet_does_not_offer_is_not_named() -> None:
    """Kubelet refuses an answer with a device that was not in its question."""
    kubelet = restarted(running("p", 0, 8))
    own = kubelet.matcher.holdings.rows_of(Holder("default", "p", "c0"))[Resource.MEM]
    kubelet.used[Resource.MEM].add(own[0])
    granted = kubelet.take(8)
    assert set(own[1:]) < set(granted.ids)
    assert own[0] not in granted.ids


def test_equal_containers_that_restart_together_get_devices_of_their_own() -> None:
    """Kubelet calls for both before it lists either."""
    texts = plan(0, 8) | {NAMES.mem_assigned: "true"}
    pod = make_pod("p", {"gpu-mem": 4}, {"gpu-mem": 4}, annotations=texts, phase="Running")
    kubelet = restarted(pod)
    granted = [kubelet.take(4), kubelet.take(4)]
    assert [each.turn.step.container for each in granted] == ["c0", "c1"]
    assert kubelet.matcher.holdings.free(kubelet.matcher.tables[Resource.MEM], GpuIndex(0)) == 7


def test_a_container_that_restarts_stays_on_the_gpu_of_its_pod() -> None:
    """Whatever its plan is: the other container runs on with what it has of that GPU."""
    texts = plan(0, 8) | {NAMES.mem_assigned: "true"}
    pod = make_pod("p", {"gpu-mem": 4}, {"gpu-mem": 4}, annotations=texts, phase="Running")
    node = matcher(INVENTORY)
    ids = node.tables[Resource.MEM].ids[GpuIndex(1)]
    listed = [Held("default", "p", {"c0": {Resource.MEM: ids[:4]}})]
    node.sync_from_kubelet(listed, requested_at=0)
    node.restarting = restarting(listed, [pod], NAMES)
    kubelet = Kubelet(node)
    kubelet.used[Resource.MEM] |= set(ids[:4])
    assert dict(kubelet.take(4).gpus) == {1: 4}


def test_what_this_plugin_gave_is_known_to_the_id() -> None:
    """Kubelet restarts without its checkpoint under a plugin that goes on."""
    node = matcher(INVENTORY)
    ids = node.tables[Resource.MEM].ids[0][4:7]  # type: ignore[index]
    node.holdings.take(Resource.MEM, ids, Holder("default", "p", "c0"))
    rows = rows_of(node, running("p", 0, 3))
    assert rows == {"c0": {Resource.MEM: ids}}


def test_after_a_restart_of_both_the_annotations_say_the_gpu() -> None:
    """Any ids of that GPU do, since ids of a GPU are alike; two pods never share one."""
    node = matcher(INVENTORY)
    pods = [running("p", 1, 3), running("q", 1, 5)]
    found = allocated(pods, NAMES, node.tables, node.holdings)
    ids = [one for each in found for one in each.containers["c0"][Resource.MEM]]
    assert len(set(ids)) == 8
    assert node.tables[Resource.MEM].per_device(ids) == {1: 8}


def test_ids_that_kubelet_reports_of_another_pod_stand_for_no_forgotten_one() -> None:
    """Neither where nothing is known of the pod, nor where the ids were its own once."""
    node = matcher(INVENTORY)
    ids = node.tables[Resource.MEM].ids[GpuIndex(0)]
    other = Held("default", "other", {"c0": {Resource.MEM: ids[10:]}})
    pods = [running("old", 0, 10)]
    for _ in range(2):
        [found] = allocated(pods, NAMES, node.tables, node.holdings, listed=[other])
        assert sorted(found.containers["c0"][Resource.MEM]) == sorted(ids[:10])
        node.holdings.take(Resource.MEM, ids[5:], Holder("default", "old", "c0"))


def test_ids_that_another_pod_was_just_given_stand_for_no_forgotten_one() -> None:
    """Kubelet may not have listed it yet."""
    node = matcher(INVENTORY)
    ids = node.tables[Resource.MEM].ids[GpuIndex(0)]
    node.holdings.take(Resource.MEM, ids[10:], Holder("default", "new", "c0"))
    rows = rows_of(node, running("old", 0, 10))
    assert sorted(rows["c0"][Resource.MEM]) == sorted(ids[:10])


def test_compute_and_whole_gpus_are_claimed_as_annotated() -> None:
    """Every resource that the pod requests."""
    node = matcher(INVENTORY)
    texts = plan(1, 3) | {NAMES.mem_assigned: "true"}
    both = make_pod("p", {"gpu-mem": 3, "gpu-core.percentage": 20}, annotations=texts)
    rows = rows_of(node, both)["c0"]
    assert {each: len(ids) for each, ids in rows.items()} == {Resource.MEM: 3, Resource.CORE: 20}
    whole = make_pod("w", {"gpu": 1}, annotations={NAMES.group: "0"})
    rows = rows_of(node, whole)["c0"]
    assert rows == {Resource.GPU: node.tables[Resource.GPU].ids[0]}  # type: ignore[index]


def test_reserved_devices_are_neither_advised_nor_granted() -> None:
    """Kubelet calls all of the GPU free; the pod that requests gets the other GPU."""
    node = matcher(INVENTORY, expected("new", {"gpu-mem": 13}, annotations=plan(0, 13)))
    rows = rows_of(node, running("old", 0, 3))
    node.sync_from_kubelet([Held("default", "old", rows)], requested_at=0)
    node.reserve([Held("default", "old", rows)])
    granted = Kubelet(node).take(13)
    assert isinstance(granted, Granted)
    assert granted.gpus == {1: 13}
    denial = node.allocate(Resource.MEM, rows["c0"][Resource.MEM])
    assert isinstance(denial, AllocationError)
    assert denial.code is AllocationErrorCode.DEVICE_IN_USE
    assert "is in use by another pod" in denial.sentence
    assert denial.pods == ("default/old",)
    node.release("default", "old")
    assert isinstance(node.allocate(Resource.MEM, rows["c0"][Resource.MEM]), Granted)


def test_a_reserved_share_keeps_its_gpu_from_being_taken_whole() -> None:
    """The devices of other resources of that GPU are not given either."""
    node = matcher(INVENTORY)
    rows = rows_of(node, running("old", 0, 3))
    node.sync_from_kubelet([Held("default", "old", rows)], requested_at=0)
    whole = node.allocate(Resource.GPU, node.tables[Resource.GPU].ids[0])  # type: ignore[index]
    assert isinstance(whole, AllocationError)


def test_text_that_names_no_gpu_reserves_nothing() -> None:
    """A pod whose annotations cannot be read, or name a GPU that the node lacks."""
    node = matcher(INVENTORY)
    for texts in ({}, plan(7, 3), {wire_names.V2_ALLOCATION: "x"}):
        pod = make_pod("p", {"gpu-mem": 3}, annotations=texts, phase="Running")
        assert rows_of(node, pod) == {}


def initialized(*requests: dict[str, int], init: int, phase: str = "Pending") -> Pod:
    """A confirmed pod of which an init container requests the most."""
    texts = plan(0, init) | {NAMES.mem_assigned: "true"}
    return make_pod("p", *requests, inits=[{"gpu-mem": init}], annotations=texts, phase=phase)


def test_a_pod_of_which_kubelet_lists_all_but_init_containers_is_found() -> None:
    """Live, confirmed, and listed with the devices of all its containers."""
    pod = initialized({"gpu-mem": 2}, init=6)
    has = Held("default", "p", {"c0": {Resource.MEM: ("GPU-0-_-1", "GPU-0-_-2")}})
    assert with_inits([has], [pod], NAMES) == [pod]
    assert with_inits([nothing("p")], [pod], NAMES) == []
    for other in (
        replace(pod, phase="Succeeded"),
        replace(pod, annotations=plan(0, 6)),
        replace(pod, init_containers=()),
        replace(pod, annotations={}),
    ):
        assert with_inits([has], [other], NAMES) == []
    only = initialized({}, init=3)
    assert with_inits([nothing("p")], [only], NAMES) == [only]
    listed = Held("default", "p", {"i0": {Resource.MEM: ("GPU-0-_-1",)}})
    assert with_inits([listed], [only], NAMES) == []


def test_an_init_container_has_what_the_pod_has_beyond_its_containers() -> None:
    """Containers use its devices again; ids that a container of any pod has are not chosen."""
    node = matcher(INVENTORY)
    ids = node.tables[Resource.MEM].ids[GpuIndex(0)]
    listed = [
        Held("default", "p", {"c0": {Resource.MEM: ids[1:3]}}),
        Held("default", "q", {"c0": {Resource.MEM: ids[:1]}}),
    ]
    pod = initialized({"gpu-mem": 2}, init=6)
    for _ in range(2):
        [found] = allocated([pod], NAMES, node.tables, node.holdings, listed=listed)
        assert found.containers == {"i0": {Resource.MEM: ids[3:7]}}
        node.holdings.take(Resource.MEM, ids[3:7], Holder("default", "p", "i0"))
    node.holdings.take(Resource.MEM, ids[3:5], Holder("default", "r", "c0"))
    [found] = allocated([pod], NAMES, node.tables, node.holdings, listed=listed)
    assert found.containers == {"i0": {Resource.MEM: ids[5:9]}}, "another pod was given two of them"


def test_an_init_container_that_needed_less_than_the_containers_has_nothing_of_its_own() -> None:
    """And an amount that the pod has on another GPU than annotated is not counted twice."""
    node = matcher(INVENTORY)
    for gpu in (0, 1):
        ids = node.tables[Resource.MEM].ids[GpuIndex(gpu)]
        listed = [Held("default", "p", {"c0": {Resource.MEM: ids[:6]}})]
        pod = initialized({"gpu-mem": 6}, init=6)
        assert allocated([pod], NAMES, node.tables, node.holdings, listed=listed) == []


def test_of_a_forgotten_pod_containers_and_init_containers_are_counted_together() -> None:
    """Six units are reserved: the container has two of those that its init container had."""
    node = matcher(INVENTORY)
    rows = rows_of(node, initialized({"gpu-mem": 2}, init=6, phase="Running"))
    assert {name: len(row[Resource.MEM]) for name, row in rows.items()} == {"c0": 2, "i0": 4}
    both = plan(0, 6) | {NAMES.mem_assigned: "true"}
    pod = make_pod(
        "p", {"gpu-mem": 2}, inits=[{"gpu-core.percentage": 5}, {"gpu-mem": 6}], annotations=both
    )
    rows = rows_of(node, pod)
    assert {name: {each: len(ids) for each, ids in row.items()} for name, row in rows.items()} == {
        "c0": {Resource.MEM: 2},
        "i0": {Resource.CORE: 5},
        "i1": {Resource.MEM: 4},
    }
