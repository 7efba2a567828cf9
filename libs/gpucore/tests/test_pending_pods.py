"""The pods that wait for a node: what a watch brought, and what requests brought before it."""

from typing import Any

import msgspec
import pytest
from corebuilders import pod, pod_request

from gpucore.scheduling import pending_pods
from gpucore.scheduling.pending_pods import PendingPods, UnscheduledPod, nominations_of
from gpucore.units import NodeName, PodUid
from gpucore.wire.names import DEFAULT_NAMES
from gpucore.wire.pod.gangs import Gang, gang_of
from gpucore.wire.pod.spec import Pod


def one(name: str, uid: str = "", mem: int = 1, **fields: object) -> UnscheduledPod:
    """A pod that waits."""
    item = msgspec.structs.replace(pod(name, mem), uid=PodUid(uid or name), **fields)
    return UnscheduledPod(item, pod_request(item))


def test_a_pod_is_found_by_its_uid_alone_where_its_name_was_used_before() -> None:
    """One of the same name with another UID is another pod."""
    pods, old, new = PendingPods(), one("p", "old"), one("p", "new")
    pods.put(old)
    pods.saw(new)
    assert pods.get("default", "p", PodUid("old")) is old
    assert pods.get("default", "p", PodUid("new")) is new
    assert pods.get("default", "p", PodUid("other")) is None
    assert pods.find("default", "p") is old
    assert pods.find("other", "p") is None


def test_what_the_watch_brought_counts_before_what_a_request_brought() -> None:
    """It has all fields of the pod."""
    pods, seen, watched = PendingPods(), one("p", mem=1), one("p", mem=2)
    pods.saw(seen)
    assert pods.get("default", "p", PodUid("p")) is seen
    assert (len(pods), list(pods.waiting())) == (0, [])
    pods.put(watched)
    assert pods.get("default", "p", PodUid("p")) is watched
    assert (len(pods), list(pods.waiting())) == (1, [watched])


def test_a_placed_pod_waits_no_more() -> None:
    """Neither as the watch had it nor as a request had it."""
    pods, item = PendingPods(), one("p")
    pods.put(item)
    pods.saw(item)
    pods.placed(item.pod)
    assert len(pods) == 0
    assert pods.get("default", "p", PodUid("p")) is None


@pytest.mark.parametrize(
    "fields",
    [
        {"gated": True},
        {"named_claims": ("c",)},
        {"claim_templates": ("t",)},
        {"pod_group": "g"},
        {"unschedulable": True},
    ],
)
def test_a_pod_that_waits_for_more_than_its_turn_is_not_queued(fields: dict[str, Any]) -> None:
    """Pods of a PodGroup wait until there are enough of them."""
    pods = PendingPods()
    pods.put(one("queued"))
    pods.put(one("held", **fields))
    assert pods.queued([one("p").pod.scheduler_name]) == 1


def test_the_deletion_of_a_pod_leaves_another_of_its_name() -> None:
    """A StatefulSet creates it at once."""
    pods, old, new = PendingPods(), one("p", "old"), one("p", "new")
    pods.put(new)
    pods.saw(old)
    pods.gone(old.pod)
    assert pods.find("default", "p") is new
    assert pods.get("default", "p", PodUid("old")) is None
    pods.gone(new.pod)
    assert pods.find("default", "p") is None


def test_a_relist_keeps_what_requests_brought() -> None:
    """The list may be older than the request."""
    pods, item = PendingPods(), one("p")
    pods.put(item)
    pods.saw(one("q"))
    pods.clear()
    assert len(pods) == 0
    assert pods.get("default", "p", PodUid("p")) is None
    assert pods.get("default", "q", PodUid("q")) is not None


def test_the_pods_that_were_requested_least_recently_are_forgotten() -> None:
    """There is a limit, and a pod that is requested again is among the recent ones."""
    pods = PendingPods()
    for number in range(pending_pods.SEEN_LIMIT):
        pods.saw(one(f"p{number}"))
    pods.saw(one("p0", mem=2))
    pods.saw(one("new"))
    known = [pods.get("default", name, PodUid(name)) for name in ("p0", "p1", "p2", "new")]
    assert [bool(each) for each in known] == [True, False, True, True]
    assert known[0] is not None
    assert known[0].pod_request == pod_request(pod("p0", 2))


def test_the_requested_pods_of_a_gang_are_found() -> None:
    """Of this very gang."""
    labels = {"gpu-topology": "g", "gpu-topology-replica": "2"}
    pods = PendingPods()
    for name, more in (("g0", labels), ("h0", labels | {"gpu-topology": "h"}), ("p", {})):
        item = pod(name, 1, labels=more)
        pods.saw(UnscheduledPod(item, pod_request(item)))
    gang = gang_of(pod("g0", 1, labels=labels))
    assert isinstance(gang, Gang)
    assert pods.seen_of(gang) == ["uid-g0"]


def ended(name: str, **fields: object) -> Pod:
    """A pod with a nomination."""
    return msgspec.structs.replace(pod(name, 1), nominated=NodeName("n"), **fields)


def test_the_nominations_of_a_cluster_are_those_of_pods_that_wait() -> None:
    """A pod keeps its nomination as text when it is bound, ends, or is deleted."""
    pods = [
        ended("waits"),
        ended("bound", node=NodeName("n")),
        ended("done", phase="Succeeded"),
        ended("leaving", terminating=True),
        pod("free", 1),
        msgspec.structs.replace(pod("plain"), nominated=NodeName("n")),
    ]
    found = nominations_of(pods, DEFAULT_NAMES)
    assert [each.name for each in found.pods()] == ["waits"]
    assert found.nodes() == {"n"}
