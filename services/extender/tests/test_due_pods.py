"""Refused pods are due for as long as their scheduler calls here, by whichever of its profiles."""

import pytest
from decoded import a_node, a_pod, state_of
from objects import pod

from gpucore.scheduling.cluster_policy import SchedulerProfiles
from gpuextender.nomination.due_pods import REFUSED_SECONDS, DuePods

PROFILES = SchedulerProfiles("exact", "exact-burst", 32)


@pytest.mark.parametrize(
    ("caller", "due"), [("exact", True), ("exact-burst", True), ("other", False)]
)
def test_a_call_by_one_profile_is_a_call_of_the_scheduler(caller: str, *, due: bool) -> None:
    """No new pod may have the profile of the pods that wait, once a burst is over."""
    item = pod("p", 2)
    item["spec"]["schedulerName"] = "exact-burst"
    state, waiting = state_of(a_node("n", 15)), a_pod(item)
    state.pod_changed(waiting)
    now = [1000.0]
    pods = DuePods(
        state,
        refused_pods=lambda: [waiting],
        is_refused=lambda uid: uid == waiting.uid,
        after=None,
        now=lambda: now[0],
        profiles=PROFILES,
    )
    assert list(pods.pods()) == []
    pods.called(caller)
    assert [one.pod.name for one in pods.pods()] == ["p"] * due
    now[0] += REFUSED_SECONDS
    assert list(pods.pods()) == []
