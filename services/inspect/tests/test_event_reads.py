"""How often events are decoded where many pods wait."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from drawncluster import FakeCluster, Gpu

from gpucore.wire.names import DEFAULT_NAMES
from gpucore.wire.pod import scheduler_events
from gpuinspect.cluster.snapshots import Snapshot, decode
from gpuinspect.queries.scheduling_status import SchedulingStatuses
from gpuinspect.queries.usage import grouped
from gpuinspect.web.frames import Frame
from gpuinspect.web.pages import podpages

PODS = 30
MESSAGE = "0/1 nodes are available: 1 Insufficient cpu."


def event(pod: str) -> dict[str, Any]:
    """The scheduler's event about a pod."""
    about = {"kind": "Pod", "namespace": "team", "name": pod, "uid": f"uid-team-{pod}"}
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": f"e-{pod}", "namespace": "team"},
        "reason": "FailedScheduling",
        "message": f"{pod}: {MESSAGE}",
        "involvedObject": about,
    }


def snapshot_of(units: int) -> Snapshot:
    """Pending pods with these units and different node selectors; each has an event."""
    cluster = FakeCluster().node("n", gpus=[Gpu(15)])
    for number in range(PODS):
        spec = {"nodeSelector": {"disk": f"d{number}"}}
        cluster.pod(f"p{number}", units, phase="Pending", namespace="team", spec=spec)
        cluster.add(event(f"p{number}"))
    return decode(cluster.json().encode())


@pytest.fixture
def decodes(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """The events that were decoded."""
    found: list[bytes] = []
    real = scheduler_events.decoded

    def counting(decoder: Any, raw: Any, fault: str) -> Any:
        if b'"involvedObject"' in bytes(raw):
            found.append(bytes(raw))
        return real(decoder, raw, fault)

    monkeypatch.setattr(scheduler_events, "decoded", counting)
    return found


def page_of_pods(snapshot: Snapshot) -> None:
    """The dashboard's page of pending pods."""
    podpages.waiting(Frame(snapshot, DEFAULT_NAMES, taken=datetime(2026, 7, 1, tzinfo=UTC)))


def usage(snapshot: Snapshot) -> None:
    """``gpushare usage``."""
    grouped(snapshot, DEFAULT_NAMES, "namespace")


def pending(snapshot: Snapshot) -> None:
    """``gpushare pending``."""
    list(SchedulingStatuses(snapshot, DEFAULT_NAMES).in_namespace(""))


@pytest.mark.parametrize("query", [page_of_pods, usage, pending])
def test_pods_without_gpus_cost_no_events(
    decodes: list[bytes], query: Callable[[Snapshot], None]
) -> None:
    """Events about pods that request no GPU are not decoded."""
    query(snapshot_of(units=0))
    assert decodes == []


@pytest.mark.parametrize("query", [page_of_pods, pending])
def test_each_event_is_decoded_once(
    decodes: list[bytes], query: Callable[[Snapshot], None]
) -> None:
    """Pods that are explained one by one share the decoded events."""
    query(snapshot_of(units=4))
    assert len(decodes) == len(set(decodes)) == PODS


def test_a_pod_has_its_own_events() -> None:
    """Events are matched by namespace, name and UID; an event without a UID is by name."""
    cluster = FakeCluster().node("n", gpus=[Gpu(15)]).pod("p", 16, phase="Pending")
    for uid, namespace, message in (
        ("uid-default-p", "default", "own"),
        ("", "default", "by name"),
        ("uid-of-an-earlier-pod", "default", "of an earlier pod"),
        ("uid-default-p", "team", "of another namespace"),
    ):
        about = {"kind": "Pod", "namespace": namespace, "name": "p", "uid": uid}
        cluster.add(event("p") | {"message": message, "involvedObject": about})
    snapshot = decode(cluster.json().encode())
    record = scheduler_events.scheduler_record(snapshot.all("Pod")[0], snapshot.events)
    assert [each.message for each in record.events] == ["own", "by name"]
