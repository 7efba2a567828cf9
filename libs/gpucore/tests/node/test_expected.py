"""What a node expects of a pod: its steps in kubelet's order and where each was planned."""

import time

from msgspec.structs import replace
from nodepods import expected, make_pod, plan

from gpucore.node.allocation.device_ids import Resource
from gpucore.node.allocation.reading import expected_of
from gpucore.wire import names as wire_names
from gpucore.wire.names import DEFAULT_NAMES, MIRROR_POD
from gpucore.wire.pod.spec import Container


def test_init_containers_come_before_containers_and_idle_ones_are_left_out() -> None:
    """Steps are the containers that ask, init containers first."""
    pod = expected("p", {"gpu-mem": 1}, {}, {"gpu-mem": 2}, inits=[{}, {"gpu-mem": 3}])
    assert [(step.container, step.init) for step in pod.steps] == [
        ("i1", True),
        ("c0", False),
        ("c2", False),
    ]


def test_a_first_generation_index_is_the_plan_of_every_container() -> None:
    """IDX alone puts each container's memory and compute on that GPU."""
    ask = {"gpu-mem": 2, "gpu-core.percentage": 20}
    pod = expected("p", ask, {"gpu-mem": 1}, annotations=plan(1, 3))
    assert pod.steps[0].plan == {Resource.MEM: {1: 2}, Resource.CORE: {1: 20}}
    assert pod.steps[1].plan == {Resource.MEM: {1: 1}}


def test_each_container_gets_the_gpus_of_its_map() -> None:
    """The V2 map is followed container by container, over several GPUs where it has several."""
    text = '{"0": {"0": 2, "3": 2}, "1": {"3": 1}}'
    pod = expected(
        "p", {"gpu-mem": 4}, {"gpu-mem": 1}, annotations={wire_names.V2_ALLOCATION: text}
    )
    assert [step.plan[Resource.MEM] for step in pod.steps] == [{0: 2, 3: 2}, {3: 1}]


def test_whole_gpus_go_to_containers_in_the_order_of_the_group() -> None:
    """The group's GPUs are dealt to the containers in their order."""
    pod = expected("p", {"gpu": 2}, {"gpu": 1}, annotations={DEFAULT_NAMES.group: "5,1,2"})
    assert [list(step.plan[Resource.GPU]) for step in pod.steps] == [[5, 1], [2]]


def test_a_pod_that_bypassed_the_scheduler_has_no_plan() -> None:
    """Without annotations every step's plan is empty."""
    assert [step.plan for step in expected("p", {"gpu-mem": 2}).steps] == [{}]


def test_a_plan_for_another_amount_is_no_plan() -> None:
    """A map whose sums are not what the container requests is not followed for its amounts."""
    pod = expected("p", {"gpu-mem": 4}, annotations={wire_names.V2_ALLOCATION: '{"0": {"1": 9}}'})
    assert Resource.MEM not in pod.steps[0].plan


def test_a_running_pod_no_longer_waits() -> None:
    """Only a Pending pod can still be admitted."""
    assert expected("p", {"gpu-mem": 1}).waiting
    assert not expected("p", {"gpu-mem": 1}, phase="Running").waiting


def test_a_mirror_pod_does_not_wait() -> None:
    """Kubelet admits static pods from its files, and any user may create what looks like one."""
    assert not expected("a", {"gpu-mem": 2}, annotations={MIRROR_POD: ""}).waiting


def test_a_pod_without_gpus_is_not_expected() -> None:
    """Nothing is expected of a pod that requests nothing of ours."""
    assert expected_of(make_pod("p", {}), DEFAULT_NAMES) is None


def test_an_amount_that_is_no_quantity_is_not_expected() -> None:
    """A pod whose amount cannot be read is left to kubelet, and nothing breaks."""
    assert expected_of(make_pod("p", {"gpu-mem": "many"}), DEFAULT_NAMES) is None


def test_an_init_container_has_the_exclusive_gpus_that_no_sidecar_before_it_keeps() -> None:
    """The containers after it use its GPUs again; those of a sidecar are the sidecar's."""
    group = {DEFAULT_NAMES.group: "5,1,2"}
    pod = make_pod("p", {"gpu": 1}, inits=[{"gpu": 2}], sidecars=[{"gpu": 1}], annotations=group)
    init, sidecar = pod.init_containers
    found = expected_of(replace(pod, init_containers=(sidecar, init)), DEFAULT_NAMES)
    assert found is not None
    plans = {step.container: list(step.plan[Resource.GPU]) for step in found.steps}
    assert plans == {"s0": [1], "i0": [5, 2], "c0": [5]}
    before = expected_of(pod, DEFAULT_NAMES)
    assert before is not None
    assert list(before.steps[0].plan[Resource.GPU]) == [5, 1]


def test_an_init_container_is_spread_over_what_sidecars_leave_of_each_gpu() -> None:
    """The scheduler counts the same amount on each GPU."""
    pod = make_pod(
        "p",
        {},
        inits=[{"gpu-mem": 1}],
        sidecars=[{"gpu-mem": 3}],
        labels={DEFAULT_NAMES.gpu_count: "2"},
        annotations={wire_names.V2_ALLOCATION: '{"1": {"0": 2, "3": 1}}'},
    )
    init, sidecar = pod.init_containers
    found = expected_of(replace(pod, init_containers=(sidecar, init)), DEFAULT_NAMES)
    assert found is not None
    assert [step.plan[Resource.MEM] for step in found.steps] == [{0: 2, 3: 1}, {3: 1}]


def test_init_containers_beside_many_sidecars_are_planned_in_time_of_their_number() -> None:
    """A tenant whose pod has thousands of them changes it at will, while other pods wait."""
    share = {DEFAULT_NAMES.gpu_mem: "1"}
    inits = [Container(name=f"s{n}", limits=share, restart_policy="Always") for n in range(1500)]
    inits += [Container(name=f"i{n}", limits=share) for n in range(1500)]
    pod = make_pod("p", {"gpu-mem": 1}, annotations=plan(1, 0))
    many = replace(pod, init_containers=tuple(inits))
    begin = time.process_time()
    found = expected_of(many, DEFAULT_NAMES)
    assert time.process_time() - begin < 2
    assert found is not None
    assert len(found.steps) == 3001
