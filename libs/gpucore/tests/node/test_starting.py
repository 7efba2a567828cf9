"""Which pod a container belongs to that kubelet is about to start."""

from gpucore.node.allocation.device_ids import Resource
from gpucore.node.allocation.holdings import Held
from gpucore.node.isolation.starting import StartingPod, starting_pod

MEM = Resource.MEM
PAIR = Held("team", "pair", {"a": {MEM: ("g-1", "g-2")}, "b": {MEM: ("g-3",)}})
OTHER = Held("team", "other", {"a": {MEM: ("h-1",), Resource.CORE: ("g-9",)}})


def test_the_ids_name_the_pod_and_all_its_containers_count() -> None:
    """A limit is one of the pod as a whole."""
    found = starting_pod(("g-3",), [OTHER, PAIR])
    assert found == StartingPod("team", "pair", frozenset({"g-1", "g-2", "g-3"}))


def test_an_init_container_with_more_than_the_others_adds_its_ids() -> None:
    """Kubelet lists the IDs that the containers after it reuse."""
    found = starting_pod(("g-3", "g-4"), [PAIR])
    assert found == StartingPod("team", "pair", frozenset({"g-1", "g-2", "g-3", "g-4"}))


def test_ids_that_nobody_lists_are_not_certain() -> None:
    """Kubelet has not admitted the pod yet, or has lost its record."""
    assert starting_pod(("x-1",), [PAIR, OTHER]) is None


def test_ids_of_two_pods_are_not_certain() -> None:
    """Kubelet still lists a pod that ended."""
    assert starting_pod(("g-3", "h-1"), [PAIR, OTHER]) is None


def test_ids_of_compute_are_no_memory() -> None:
    """Resources have IDs of the same form."""
    assert starting_pod(("g-9",), [OTHER]) is None
