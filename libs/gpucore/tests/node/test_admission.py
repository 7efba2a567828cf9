"""Whom kubelet means: the order of arrival, the pod in progress, and what kubelet reports later."""

from nodepods import expected

from gpucore.node.allocation.admission_queue import AdmissionQueue
from gpucore.node.allocation.device_ids import Resource
from gpucore.node.allocation.holdings import Held
from gpucore.units import PodUid

MEM, CORE = Resource.MEM, Resource.CORE


def queue(*pods: object) -> AdmissionQueue:
    made = AdmissionQueue(tuple(Resource))
    for pod in pods:
        made.see(pod)  # type: ignore[arg-type]
    return made


def name(made: AdmissionQueue, amount: int, resource: Resource = MEM) -> str:
    turn = made.turn(resource, amount)
    return f"{turn.pod.name}/{turn.step.container}" if turn else ""


def give(made: AdmissionQueue, amount: int, resource: Resource = MEM, at: int = 1) -> str:
    turn = made.turn(resource, amount)
    assert turn is not None
    made.give(turn, resource, (f"{turn.pod.name}-{turn.step.container}-{resource}",), at=at)
    return f"{turn.pod.name}/{turn.step.container}"


def test_equal_pods_are_taken_in_order_of_arrival() -> None:
    """Two pods of 2: the one that arrived first is meant first, then the other."""
    made = queue(expected("b", {"gpu-mem": 2}), expected("a", {"gpu-mem": 2}))
    assert [give(made, 2), give(made, 2)] == ["b/c0", "a/c0"]
    assert name(made, 2) == ""


def test_an_unequal_pod_in_front_is_not_mistaken() -> None:
    """A call for 3 never means a pod of 2."""
    made = queue(expected("a", {"gpu-mem": 2}), expected("b", {"gpu-mem": 3}))
    assert name(made, 3) == "b/c0"


def test_the_next_container_of_the_pod_in_progress_comes_first() -> None:
    """After a's first container its second is meant, although b of that amount waits as well."""
    made = queue(expected("a", {"gpu-mem": 1}, {"gpu-mem": 2}), expected("b", {"gpu-mem": 2}))
    assert [give(made, 1), give(made, 2), give(made, 2)] == ["a/c0", "a/c1", "b/c0"]


def test_memory_and_compute_of_a_container_come_in_any_order() -> None:
    """Kubelet walks a container's resources in no order; the next container waits for both."""
    both = {"gpu-mem": 2, "gpu-core.percentage": 2}
    made = queue(expected("a", both, {"gpu-mem": 2}))
    assert give(made, 2, CORE) == "a/c0"
    assert give(made, 2, MEM) == "a/c0"
    assert give(made, 2, MEM) == "a/c1"


def test_a_pod_that_kubelet_left_in_the_middle_is_passed_over() -> None:
    """Kubelet admits one pod at a time: when it goes on to b, the rest of a will not come."""
    made = queue(expected("a", {"gpu-mem": 1}, {"gpu-mem": 7}), expected("b", {"gpu-mem": 2}))
    give(made, 1)
    give(made, 2)
    assert name(made, 7) == ""


def test_after_a_restart_kubelet_goes_by_creation_and_finishes_what_it_left() -> None:
    """A restarted kubelet sorts by creation time; a pod left in the middle may come again."""
    made = queue(
        expected("late", {"gpu-mem": 2}, created=9),
        expected("half", {"gpu-mem": 1}, {"gpu-mem": 7}, created=5),
        expected("early", {"gpu-mem": 2}, created=1),
    )
    give(made, 1)
    give(made, 2)
    made.kubelet_restarted()
    assert name(made, 7) == "half/c1"
    assert name(made, 2) == "early/c0"


def test_a_refused_pod_is_not_requested_again() -> None:
    """A pod that was turned away leaves the next equal one in its place."""
    made = queue(expected("a", {"gpu-mem": 2}), expected("b", {"gpu-mem": 2}))
    made.turn_away(PodUid("uid-a"))
    assert name(made, 2) == "b/c0"


def test_a_refusal_of_another_pod_leaves_the_pod_in_progress() -> None:
    """Its next container comes before that of a pod which arrived earlier."""
    made = queue(
        expected("early", {"gpu-mem": 2}),
        expected("a", {"gpu-mem": 1}, {"gpu-mem": 2}),
        expected("refused", {"gpu-mem": 3}),
    )
    give(made, 1)
    made.turn_away(PodUid("uid-refused"))
    assert name(made, 2) == "a/c1"


def test_a_pod_that_runs_or_is_gone_is_no_candidate() -> None:
    """Running pods and deleted pods leave the queue."""
    made = queue(expected("a", {"gpu-mem": 2}), expected("b", {"gpu-mem": 2}))
    made.see(expected("a", {"gpu-mem": 2}, phase="Running"))
    made.drop(PodUid("uid-b"))
    assert name(made, 2) == ""


def test_the_list_of_kubelet_corrects_a_wrong_guess() -> None:
    """Kubelet turned a away unseen and b got its ids: the account frees a and settles b."""
    made = queue(expected("a", {"gpu-mem": 2}), expected("b", {"gpu-mem": 2}))
    give(made, 2, at=1)  # thought to be a; it was b
    held = Held("default", "b", {"c0": {MEM: ("a-c0-gpu-mem",)}})
    made.sync_from_kubelet([held], requested_at=0)
    assert name(made, 2) == "a/c0"
    give(made, 2, at=2)
    assert name(made, 2) == ""


def test_an_answer_that_is_older_than_a_grant_takes_nothing_back() -> None:
    """Kubelet notes a grant late: until then its silence about it means nothing."""
    made = queue(expected("a", {"gpu-mem": 1}, {"gpu-mem": 2}))
    give(made, 1, at=5)
    made.sync_from_kubelet([], requested_at=4)
    assert name(made, 2) == "a/c1"
    made.sync_from_kubelet([], requested_at=5)
    assert name(made, 1) == "a/c0"


def test_an_answer_from_the_middle_of_a_container_keeps_its_other_resource() -> None:
    """Kubelet has noted the memory and not yet the compute: the compute is not requested again."""
    both = {"gpu-mem": 3, "gpu-core.percentage": 2}
    made = queue(expected("a", both, {"gpu-mem": 7}), expected("b", {"gpu-mem": 7}))
    give(made, 3, MEM, at=1)
    give(made, 2, CORE, at=2)
    made.sync_from_kubelet([Held("default", "a", {"c0": {MEM: ("a-c0-gpu-mem",)}})], requested_at=0)
    assert name(made, 7) == "a/c1"


def test_init_containers_are_done_once_a_container_has_begun() -> None:
    """Kubelet 1.20 does not report init containers; one container is proof that they ran."""
    made = queue(expected("a", {"gpu-mem": 1}, {"gpu-mem": 2}, inits=[{"gpu-mem": 5}]))
    made.sync_from_kubelet([Held("default", "a", {"c0": {MEM: ("x",)}})], requested_at=0)
    assert name(made, 2) == "a/c1"
    assert name(made, 5) == ""


def test_a_pod_whose_init_container_runs_is_not_requested_again() -> None:
    """Kubelet lists it without devices for as long as the init container runs."""
    made = queue(
        expected("a", {}, inits=[{"gpu-mem": 2}]), expected("b", {"gpu-mem": 2}, created=1)
    )
    give(made, 2, at=1)
    made.sync_from_kubelet([Held("default", "a", {})], requested_at=1)
    assert [pod.name for pod in made.unserved()] == ["b"]
    made.kubelet_restarted()
    made.sync_from_kubelet([], requested_at=1)
    assert name(made, 2) == "b/c0"


def test_the_list_of_kubelet_corrects_a_wrong_guess_about_an_init_container() -> None:
    """Another pod has the devices, so kubelet has yet to call for the init container."""
    made = queue(expected("a", {}, inits=[{"gpu-mem": 2}]), expected("b", {"gpu-mem": 2}))
    give(made, 2, at=1)  # thought to be a; it was b
    held = Held("default", "b", {"c0": {MEM: ("a-i0-gpu-mem",)}})
    made.sync_from_kubelet([Held("default", "a", {}), held], requested_at=1)
    assert name(made, 2) == "a/i0"


def test_only_served_resources_are_waited_for() -> None:
    """A resource that this node does not serve is never requested, so it holds up nothing."""
    made = AdmissionQueue((MEM,))
    made.see(expected("a", {"gpu-mem": 1, "gpu-core.percentage": 9}, {"gpu-mem": 2}))
    assert give(made, 1) == "a/c0"
    assert give(made, 2) == "a/c1"
