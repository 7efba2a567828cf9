"""GPUs behind MPS daemons on the node: demands, crowds, and shares of several GPUs."""

from nodepods import Kubelet, expected, make_gpu, matcher, plan

from gpucore.accounting.device_info import MPS_CLIENTS
from gpucore.model import Inventory, IsolationMode
from gpucore.node.allocation.allocation_error import AllocationError, AllocationErrorCode
from gpucore.node.allocation.device_ids import Resource
from gpucore.node.allocation.matcher import AllocationMatcher, Granted

DEMAND = {"gpushare/isolation": "mps"}
MIXED = Inventory(gpus=(make_gpu(0), make_gpu(1, isolation=IsolationMode.MPS)))
BOTH = Inventory(
    gpus=(make_gpu(0, isolation=IsolationMode.MPS), make_gpu(1, isolation=IsolationMode.MPS))
)
PLAIN = Inventory(gpus=(make_gpu(0), make_gpu(1)))


def denied(answer: object, code: AllocationErrorCode) -> str:
    assert isinstance(answer, AllocationError), answer
    assert answer.code is code
    return answer.sentence


def test_a_pod_that_demands_mps_goes_to_a_gpu_that_has_it() -> None:
    """Though it was planned elsewhere, or another GPU would fit better."""
    pods = (
        expected("planned", {"gpu-mem": 3}, annotations=plan(0) | DEMAND),
        expected("free", {"gpu-mem": 2}, annotations=DEMAND),
    )
    kubelet = Kubelet(matcher(MIXED, *pods))
    for amount in (3, 2):
        answer = kubelet.take(amount)
        assert isinstance(answer, Granted)
        assert dict(answer.gpus) == {1: amount}


def test_a_demand_that_no_gpu_meets_is_refused_with_a_sentence() -> None:
    """The pod is not run unprotected."""
    kubelet = Kubelet(matcher(PLAIN, expected("p", {"gpu-mem": 3}, annotations=DEMAND)))
    message = denied(kubelet.take(3), AllocationErrorCode.ISOLATION_MODE_MISSING)
    assert message == "GPU 0 has isolation mode none, but the pod demands mps"


def test_ids_of_a_gpu_without_the_demanded_rung_are_refused() -> None:
    """Allocate reports it too, whatever kubelet was advised."""
    state = matcher(PLAIN, expected("p", {"gpu-mem": 2}, annotations=plan(0) | DEMAND))
    ids = state.tables[Resource.MEM].ids[make_gpu(0).index][:2]
    denied(state.allocate(Resource.MEM, ids), AllocationErrorCode.ISOLATION_MODE_MISSING)


def test_a_daemon_serves_so_many_pods_at_most() -> None:
    """The next one is refused where no other GPU is left, though there is room."""
    pods = [expected(f"p{i}", {"gpu-mem": 1}) for i in range(MPS_CLIENTS + 1)]
    kubelet = Kubelet(
        matcher(Inventory(gpus=(make_gpu(0, 80, isolation=IsolationMode.MPS),)), *pods)
    )
    for _ in range(MPS_CLIENTS):
        assert isinstance(kubelet.take(1), Granted)
    message = denied(kubelet.take(1), AllocationErrorCode.MAX_PODS)
    assert message == "GPU 0 has 48 pods, the maximum for one MPS daemon"


def test_a_full_daemon_takes_the_next_container_of_a_pod_that_it_serves() -> None:
    """Pods are counted, and this one is among them already."""
    pods = [expected(f"p{i}", {"gpu-mem": 1}) for i in range(MPS_CLIENTS - 1)]
    pods.append(expected("last", {"gpu-mem": 1}, {"gpu-mem": 2}))
    kubelet = Kubelet(
        matcher(Inventory(gpus=(make_gpu(0, 80, isolation=IsolationMode.MPS),)), *pods)
    )
    answers = [kubelet.take(amount) for amount in (*[1] * MPS_CLIENTS, 2)]
    assert all(isinstance(each, Granted) for each in answers)


def test_a_share_of_several_gpus_needs_one_daemon_for_all() -> None:
    """A program speaks to one daemon, so it would see one GPU only."""
    pod = expected("p", {"gpu-mem": 4}, labels={"aliyun.com/gpu-count": "2"})
    message = denied(Kubelet(matcher(BOTH, pod)).take(4), AllocationErrorCode.SPANS_GPUS)
    assert message.startswith("GPUs 0 and 1 have daemons of their own for MPS")
    shared = AllocationMatcher(tuple(Resource), one_daemon=True)
    shared.equip(BOTH)
    shared.queue.see(pod)
    assert isinstance(Kubelet(shared).take(4), Granted)


def test_whole_gpus_may_be_had_of_gpus_with_mps() -> None:
    """Who has a GPU to itself needs no daemon."""
    pod = expected("p", {"gpu": 2})
    assert isinstance(Kubelet(matcher(BOTH, pod)).take(2, Resource.GPU), Granted)
