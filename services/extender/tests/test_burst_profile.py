"""The webhook gives new pods the burst profile while many pods wait, and only then."""

import base64
import json
from collections.abc import Iterable
from typing import Any

import pytest
from admissioncalls import Known
from decoded import a_node, a_pod, state_of
from objects import Object, pod

from gpucore.scheduling.cluster_policy import SchedulerProfiles
from gpucore.wire.names import POD_GROUP, POD_GROUP_SIZE
from gpuextender.health import Readiness
from gpuextender.state import State
from gpuextender.webhook import AdmissionWebhook

EXACT, BURST = "gpushare-scheduler", "gpushare-scheduler-burst"
PROFILES = SchedulerProfiles(EXACT, BURST, 8)
NODES = 101


class Cluster:
    """A state with nodes, and the webhooks that watch it."""

    def __init__(self, nodes: int = NODES) -> None:
        self.state = state_of(*(a_node(f"n{number:03}", 15) for number in range(nodes)))
        self.health = Readiness([Known()], stale_after=60)
        self.health.loaded = True
        self.hook = self.webhook()

    def webhook(self, state: State | None = None) -> AdmissionWebhook:
        """One process of the webhook."""
        return AdmissionWebhook(state or self.state, self.health, profiles=PROFILES)

    def waiting(self, names: Iterable[int], scheduler: str = EXACT, **spec: Any) -> None:
        """The watch brings pods that wait."""
        for number in names:
            self.put(queued(f"w{number}", scheduler, **spec))

    def put(self, item: Object) -> None:
        """The watch brings a pod."""
        self.state.pod_changed(a_pod(item))

    def chosen(self, item: Object | None = None, hook: AdmissionWebhook | None = None) -> str:
        """The scheduler that a new pod would get from the webhook; empty for none."""
        return self._review(item, hook, dryRun=True)

    def created(self, item: Object | None = None) -> str:
        """The scheduler that a new pod gets from the webhook, before the watch brings it."""
        return self._review(item)

    def _review(
        self, item: Object | None, hook: AdmissionWebhook | None = None, **more: bool
    ) -> str:
        request = {"uid": "r", "namespace": "default", "object": item or pod("new", 2), **more}
        body = json.dumps({"request": request}).encode()
        response = (hook or self.hook).review(body)["response"]
        changes = json.loads(base64.b64decode(response.get("patch", "W10=")))
        return next((each["value"] for each in changes), "")


def queued(name: str, scheduler: str, **spec: Any) -> Object:
    """A pod that waits for its first try."""
    item = pod(name, 2, uid=name)
    item["spec"] |= {"schedulerName": scheduler, **spec}
    return item


def refused(item: Object) -> Object:
    """The pod after its scheduler found no node."""
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    return item | {"status": {"phase": "Pending", "conditions": [condition]}}


def test_new_pods_get_the_burst_profile_while_many_pods_wait() -> None:
    """From more than 8 pods in the queue until 2, of both profiles together."""
    cluster = Cluster()
    cluster.waiting(range(8))
    assert cluster.chosen() == EXACT
    cluster.waiting([8], BURST)
    assert cluster.chosen() == BURST
    for number in range(6):
        cluster.put(queued(f"w{number}", EXACT, nodeName="n000"))
    assert cluster.chosen() == BURST
    cluster.put(queued("w6", EXACT, nodeName="n000"))
    assert cluster.chosen() == EXACT
    cluster.waiting(range(6))
    assert cluster.chosen() == EXACT


def test_pods_that_the_watch_has_not_shown_yet_count() -> None:
    """A burst begins with its tenth pod, also where the watch is late; none counts twice."""
    cluster = Cluster()
    assert [cluster.created() for _ in range(10)] == [EXACT] * 9 + [BURST]
    cluster = Cluster()
    for number in range(4):
        assert cluster.created() == EXACT
        cluster.waiting([number])
    assert [cluster.created() for _ in range(6)] == [EXACT] * 5 + [BURST]


def test_pods_that_the_watch_never_shows_count_for_half_a_second(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As those that a quota refuses after the webhook."""
    cluster, now = Cluster(), [100.0]
    monkeypatch.setattr("gpuextender.webhook.monotonic", lambda: now[0])
    assert [cluster.created() for _ in range(10)][-1] == BURST
    now[0] = 100.4
    assert cluster.chosen() == BURST
    now[0] = 100.6
    assert cluster.chosen() == EXACT


def test_trials_and_pods_with_scheduling_gates_are_no_burst() -> None:
    """No scheduler tries them: ``--dry-run=server`` stores nothing."""
    cluster = Cluster()
    gated = pod("gated", 2)
    gated["spec"]["schedulingGates"] = [{"name": "example.com/later"}]
    for _ in range(20):
        assert cluster.chosen() == EXACT
        assert cluster.created(gated) == EXACT
    assert cluster.created() == EXACT


def test_pods_that_fit_nowhere_are_no_burst() -> None:
    """Nor are those with scheduling gates, those of others, or those that request nothing."""
    cluster = Cluster()
    for number in range(20):
        cluster.put(refused(queued(f"refused{number}", EXACT)))
    cluster.waiting(range(20, 40), schedulingGates=[{"name": "quota"}])
    cluster.waiting(range(40, 60), "volcano")
    cluster.waiting(range(60, 80), containers=[])
    assert cluster.chosen() == EXACT
    for number in range(9):
        cluster.put(queued(f"refused{number}", EXACT))
    assert cluster.chosen() == BURST


@pytest.mark.parametrize(
    "spec",
    [
        {"resourceClaims": [{"name": "c", "resourceClaimName": "missing"}]},
        {"resourceClaims": [{"name": "c", "resourceClaimTemplateName": "missing"}]},
        {"schedulingGroup": {"podGroupName": "never-complete"}},
        {"schedulingGates": [{"name": "quota"}]},
    ],
    ids=["claim", "claim template", "PodGroup", "gate"],
)
def test_pods_that_kube_scheduler_may_never_try_are_no_burst(spec: Object) -> None:
    """kube-scheduler holds such pods back without a condition; 33 of them would last for ever."""
    cluster = Cluster()
    cluster.waiting(range(33), **spec)
    assert cluster.chosen() == EXACT
    cluster.waiting(range(33, 42))
    assert cluster.chosen() == BURST


def test_a_deleted_pod_and_a_new_list_leave_the_count_right() -> None:
    """What the watch takes away counts no more."""
    cluster = Cluster()
    cluster.waiting(range(9))
    cluster.state.pod_gone(a_pod(queued("w0", EXACT)))
    assert cluster.chosen() == EXACT
    cluster.state.relist_pods([a_pod(queued(f"w{number}", EXACT)) for number in range(9)])
    assert cluster.chosen() == BURST
    cluster.state.relist_pods([])
    assert cluster.chosen() == EXACT


@pytest.mark.parametrize("name", [EXACT, BURST, "volcano"])
def test_a_pod_that_names_a_scheduler_keeps_it(name: str) -> None:
    """Whether many pods wait or none."""
    cluster = Cluster()
    assert cluster.chosen(queued("p", name)) == ""
    cluster.waiting(range(20))
    assert cluster.chosen(queued("p", name)) == ""


def test_the_pods_of_a_gang_get_one_profile() -> None:
    """The exact one, by labels and by PodGroup: a gang is planned on all nodes."""
    cluster = Cluster()
    cluster.waiting(range(20))
    by_label = pod("g-0", 2, labels={POD_GROUP: "g", POD_GROUP_SIZE: "2"})
    by_group = pod("g-1", 2)
    by_group["spec"]["schedulingGroup"] = {"podGroupName": "g"}
    assert cluster.chosen(by_group) == EXACT
    assert cluster.chosen(by_label) == EXACT
    assert cluster.chosen() == BURST


def test_a_small_cluster_has_no_bursts() -> None:
    """With a hundred nodes both profiles compare all of them."""
    cluster = Cluster(NODES - 1)
    cluster.waiting(range(20))
    assert cluster.chosen() == EXACT


def test_a_webhook_that_does_not_know_the_cluster_chooses_the_exact_profile() -> None:
    """Its count may be wrong while the watch is behind."""
    cluster = Cluster()
    cluster.waiting(range(20))
    cluster.health.loaded = False
    assert cluster.chosen() == EXACT


def test_webhooks_that_were_asked_nothing_choose_as_those_that_were() -> None:
    """The watch of each brings all pods, whoever admitted them."""
    cluster = Cluster()
    cluster.waiting(range(9))
    assert [cluster.chosen(hook=cluster.webhook()) for _ in range(3)] == [BURST] * 3
