"""MIG instances on the node: a container with several GPUs gets none of them."""

from nodepods import Kubelet, expected, make_gpu, matcher, plan

from gpucore.model import Inventory
from gpucore.node.allocation.allocation_error import AllocationError, AllocationErrorCode
from gpucore.node.allocation.device_ids import Resource
from gpucore.node.allocation.matcher import Granted
from gpucore.wire.names import DEFAULT_NAMES

MIXED = Inventory(gpus=(make_gpu(0), make_gpu(1), make_gpu(2, mig=True), make_gpu(3, mig=True)))
ONE_FULL = Inventory(gpus=(make_gpu(0), make_gpu(2, mig=True), make_gpu(3, mig=True)))
SPREAD = {DEFAULT_NAMES.gpu_count: "2"}


def group(gpus: str) -> dict[str, str]:
    """The annotation of exclusive GPUs."""
    return {DEFAULT_NAMES.group: gpus}


def refused(answer: object) -> str:
    """The sentence of a refusal because of MIG."""
    assert isinstance(answer, AllocationError), answer
    assert answer.code is AllocationErrorCode.MIG_INSTANCE
    return answer.sentence


def test_several_gpus_are_taken_from_those_without_mig() -> None:
    """A plan with a MIG instance, which an old extender wrote, gives way to full GPUs."""
    for pod in (
        expected("planned", {"gpu": 2}, annotations=group("2,3")),
        expected("mixed", {"gpu": 2}, annotations=group("0,2")),
        expected("unplanned", {"gpu": 2}),
    ):
        answer = Kubelet(matcher(MIXED, pod)).take(2, Resource.GPU)
        assert isinstance(answer, Granted)
        assert dict(answer.gpus) == {0: 1, 1: 1}


def test_a_share_of_several_gpus_is_taken_from_those_without_mig() -> None:
    """Instances that fit better are passed over."""
    small = Inventory(gpus=(*MIXED.gpus[:2], make_gpu(2, 4, mig=True), make_gpu(3, 4, mig=True)))
    answer = Kubelet(matcher(small, expected("p", {"gpu-mem": 4}, labels=SPREAD))).take(4)
    assert isinstance(answer, Granted)
    assert dict(answer.gpus) == {0: 2, 1: 2}


def test_a_container_of_several_gpus_is_refused_where_only_mig_instances_are_left() -> None:
    """The sentence names the instances, and what the pod needs."""
    sentence = refused(Kubelet(matcher(ONE_FULL, expected("p", {"gpu": 2}))).take(2, Resource.GPU))
    assert sentence == (
        "GPUs 2 and 3 are MIG instances, and a process uses no GPU beside a MIG instance: "
        "a container with several GPUs needs GPUs without MIG"
    )
    refused(Kubelet(matcher(ONE_FULL, expected("p", {"gpu-mem": 4}, labels=SPREAD))).take(4))


def test_allocate_refuses_a_mig_instance_beside_a_gpu() -> None:
    """Whatever kubelet was advised, and for an unknown pod too."""
    for pods in ((expected("p", {"gpu": 2}, annotations=group("0,1")),), ()):
        state = matcher(MIXED, *pods)
        ids = [state.tables[Resource.GPU].ids[make_gpu(index).index][0] for index in (0, 2)]
        refused(state.allocate(Resource.GPU, tuple(ids)))


def test_containers_of_one_gpu_each_may_have_mig_instances() -> None:
    """Each process sees its own instance."""
    pod = expected("p", {"gpu": 1}, {"gpu": 1}, annotations=group("2,3"))
    kubelet = Kubelet(matcher(MIXED, pod))
    got = [kubelet.take(1, Resource.GPU).gpus for _ in range(2)]
    assert [dict(gpus) for gpus in got] == [{2: 1}, {3: 1}]


def test_a_share_of_one_mig_instance_is_granted() -> None:
    """One instance alone is what CUDA shows a process."""
    answer = Kubelet(matcher(MIXED, expected("p", {"gpu-mem": 3}, annotations=plan(2)))).take(3)
    assert isinstance(answer, Granted)
    assert dict(answer.gpus) == {2: 3}
