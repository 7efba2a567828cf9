"""The pods of each gang that exist: which ones count, and which are evicted together."""

import msgspec
import pytest
from corebuilders import NAMES, pod, pod_request

from gpucore.gang.gang_pods import GangPods
from gpucore.gang.members import Member, Members
from gpucore.gang.reservations import reservation_of, vanished_gangs
from gpucore.model import Allocation, AllocationState, Placement
from gpucore.units import GpuIndex, NodeName, PodUid
from gpucore.wire.pod.gangs import Gang
from gpucore.wire.pod.spec import Pod
from gpucore.wire.pod_groups import PodGroup

GANG = Gang("default", "train", 3)
GROUP = Gang("default", "podgroup/g", 1)


def labelled(name: str, mem: int = 4, gang: str = "train", **more: object) -> Pod:
    """A pod of a gang of three."""
    labels = {"gpu-topology": gang, "gpu-topology-replica": "3"}
    return pod(name, mem, labels=labels, **more)  # type: ignore[arg-type]


def grouped(name: str, **more: object) -> Pod:
    """A pod of the PodGroup ``g``."""
    return msgspec.structs.replace(pod(name, 4, **more), pod_group="g")  # type: ignore[arg-type]


def as_member(item: Pod) -> Member:
    """The pod with what it requests."""
    return Member(item, pod_request(item))


def known(*pods: Pod, holding: str = "") -> GangPods:
    """The watch showed these pods; one of them holds a place."""
    found = GangPods(NAMES, lambda uid: uid == f"uid-{holding}")
    for item in pods:
        found.note(item)
    return found


def names(members: list[Member]) -> list[str]:
    """Names of the pods."""
    return [one.pod.name for one in members]


def test_a_pod_is_a_new_member_of_its_gang_once() -> None:
    """A pod of no gang is none, nor is one that has scheduling gates."""
    found = known()
    assert found.note(labelled("a"))
    assert not found.note(labelled("a"))
    assert not found.note(pod("alone", 4))
    gated = msgspec.structs.replace(labelled("b"), gated=True)
    assert not found.note(gated)
    assert found.note(labelled("b"))


def test_a_pod_whose_labels_change_leaves_its_gang_for_the_other() -> None:
    """And counts nowhere once its labels name none."""
    found = known(labelled("a"), labelled("b"))
    assert found.note(labelled("b", gang="other"))
    assert names(found.group(as_member(labelled("a")), GANG)) == ["a"]
    other = Gang("default", "other", 3)
    assert names(found.group(as_member(labelled("c", gang="other")), other)) == ["c", "b"]
    assert not found.note(pod("b", 4))
    assert names(found.group(as_member(labelled("c", gang="other")), other)) == ["c"]


@pytest.mark.parametrize("gone", ["deleted", "ended", "new list"])
def test_a_pod_that_is_gone_is_no_member(gone: str) -> None:
    """However it went; its name may come again."""
    found = known(labelled("a"), labelled("b"), labelled("c"))
    if gone == "deleted":
        found.drop(PodUid("uid-b"))
        found.drop(PodUid("uid-b"))
    elif gone == "ended":
        found.note(labelled("b", phase="Succeeded"))
    else:
        found.clear()
        found.note(labelled("a"))
        found.note(labelled("c"))
    assert names(found.group(as_member(labelled("a")), GANG)) == ["a", "c"]
    assert found.note(labelled("b"))


def test_the_pod_being_scheduled_counts_without_the_watch_and_only_once() -> None:
    """It is the first of its gang, and no other pod takes its place."""
    asking = as_member(labelled("c"))
    found = known(labelled("a"), labelled("b"), labelled("c"))
    assert names(found.group(asking, GANG)) == ["c", "a", "b"]
    assert names(known(labelled("a")).group(asking, GANG)) == ["c", "a"]
    assert names(known().group(asking, GANG)) == ["c"]


def test_members_without_a_place_are_counted_by_their_request() -> None:
    """A pod that holds a place, has a node or requests another amount exists, and takes none."""
    pods = [labelled("a"), labelled("b"), labelled("held"), labelled("large", 8)]
    found = known(*pods, labelled("bound", node="n"), holding="held")
    asking = as_member(labelled("a"))
    assert found.members(asking, GANG) == Members(exist=5, alike=2)
    assert names(found.without_place(asking, GANG)) == ["a", "b"]


def test_pods_of_a_scheduler_request_wait_for_a_place_too() -> None:
    """A request may come before the watch; a pod that both show is counted once."""
    found = known(labelled("a"), labelled("held"), labelled("bound", node="n"), holding="held")
    requested = [PodUid(f"uid-{name}") for name in ("a", "new", "held")]
    assert found.waiting(GANG, requested) == 2
    assert found.waiting(GANG, ()) == 1


def reserved(number: int, gang: Gang = GANG) -> Allocation:
    """A place that is reserved for a gang."""
    uid = PodUid(f"gang/{gang.namespace}/{gang.name}/{number}")
    place = Placement(NodeName("n"))
    return Allocation(uid, gang.namespace, "", AllocationState.RESERVED, place, gang=gang.name)


def test_a_gang_has_as_many_spare_places_as_fewer_pods_wait() -> None:
    """Pods of the watch and of a scheduler's request wait."""
    found, held = known(labelled("a")), [reserved(number) for number in range(3)]
    assert found.spare(GANG, held, [PodUid("uid-new")]) == [held[2].uid]
    assert found.spare(GANG, held, []) == [held[1].uid, held[2].uid]


def test_places_of_requests_that_no_pod_has_are_spare_first() -> None:
    """The large pods were deleted: the places of those that wait stay."""
    found = known(labelled("a", 2), labelled("b", 2))
    gpu = GpuIndex(0)
    held = [
        msgspec.structs.replace(reserved(number), placement=Placement(NodeName("n"), {gpu: mem}))
        for number, mem in enumerate((8, 2, 2))
    ]
    assert found.spare(GANG, held, []) == [held[0].uid]
    found.note(labelled("c", 8))
    assert found.spare(GANG, held, []) == []
    found.drop(PodUid("uid-a"))
    assert found.spare(GANG, held, []) == [held[2].uid]
    assert found.spare(GANG, held[::-1], []) == [held[1].uid], "a second place for one request"


def test_a_pod_group_that_is_disrupted_as_a_whole_is_evicted_with_all_its_pods() -> None:
    """Those that have a node; other gangs and other pods are evicted one by one."""
    pods = [grouped("a", node="n"), grouped("b", node="m"), grouped("pending")]
    found = known(*pods, labelled("label", node="n"))
    assert found.evicted_with(PodUid("uid-a")) == {}
    found.groups.on_update(PodGroup("default", "g", 2, disrupted_whole=True))
    assert found.evicted_with(PodUid("uid-a")) == {"uid-a": "n", "uid-b": "m"}
    assert found.evicted_with(PodUid("uid-label")) == {}
    assert found.evicted_with(PodUid("uid-unknown")) == {}


def test_a_pod_group_has_the_size_of_its_object() -> None:
    """Another gang has that of its labels; a pod of no gang has none."""
    found = known()
    found.groups.on_update(PodGroup("default", "g", 7))
    assert found.gang_of(grouped("a")) == msgspec.structs.replace(GROUP, size=7)
    assert found.gang_of(labelled("a")) == GANG
    assert found.gang_of(pod("alone", 4)) is None


def test_the_place_of_a_member_whose_bind_failed_is_reserved_for_its_gang() -> None:
    """Under a UID of its own, so that the pod itself can be bound again."""
    place = Placement(NodeName("n"), mem={})
    held = Allocation(
        PodUid("u"), "default", "p", AllocationState.ASSUMED, place, assume_time=7, gang="train"
    )
    kept = reservation_of(held)
    assert kept == Allocation(
        PodUid("gang/default/train/u"),
        "default",
        "gang train",
        AllocationState.RESERVED,
        place,
        assume_time=7,
        gang="train",
    )


def test_a_gang_without_pods_is_found_by_what_is_reserved_for_it() -> None:
    """Not by what its last pods hold, and not while a pod of it exists."""
    other = Gang("other", "train", 3)
    bound = msgspec.structs.replace(reserved(1, Gang("x", "y", 2)), state=AllocationState.BOUND)
    held = [reserved(0), reserved(1), reserved(0, other), bound]
    assert vanished_gangs(held, {GANG}) == {Gang("other", "train", 0)}
    assert vanished_gangs(held, set()) == {Gang("default", "train", 0), Gang("other", "train", 0)}
