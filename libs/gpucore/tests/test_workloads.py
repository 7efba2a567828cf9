"""The workload that a pod belongs to, by the name of its controller."""

import pytest

from gpucore.units import PodUid
from gpucore.wire.pod.controllers import Controller, workload_of
from gpucore.wire.pod.spec import Pod

CREATED = "2026-01-01T00:00:00Z"
MINUTE = 1_767_225_600 // 60
"""That of :data:`CREATED`."""
WEEK = 7 * 24 * 60


def found(kind: str, name: str, *, creation: str = CREATED, template: str = "") -> tuple[str, str]:
    """The workload of the pod ``p`` with this controller."""
    labels = {"pod-template-hash": template} if template else {}
    pod = Pod(PodUid("u"), "team", "p", labels=labels, creation=creation)
    return workload_of(pod, Controller("v1", kind, name, "uid", controller=True))


def test_a_pod_without_a_controller_is_its_own_workload() -> None:
    """As one that a person created."""
    assert workload_of(Pod(PodUid("u"), "team", "p"), None) == ("Pod", "p")


def test_a_replica_set_of_a_deployment_is_named_after_it() -> None:
    """By the hash of the template; any other ReplicaSet is a workload of its own."""
    assert found("ReplicaSet", "web-7f8d", template="7f8d") == ("Deployment", "web")
    assert found("ReplicaSet", "web-7f8d", template="other") == ("ReplicaSet", "web-7f8d")
    assert found("ReplicaSet", "web-7f8d") == ("ReplicaSet", "web-7f8d")
    assert found("ReplicaSet", "-7f8d", template="7f8d") == ("ReplicaSet", "-7f8d")
    assert found("StatefulSet", "web-7f8d", template="7f8d") == ("StatefulSet", "web-7f8d")


@pytest.mark.parametrize(
    ("minute", "cron"),
    [(MINUTE, True), (MINUTE - WEEK, True), (MINUTE - WEEK - 1, False), (MINUTE + 1, False)],
)
def test_a_job_is_that_of_a_cronjob_by_the_minute_it_was_due(minute: int, *, cron: bool) -> None:
    """A pod comes after that minute, and with retries within a week of it."""
    name = f"nightly-{minute}"
    assert found("Job", name) == (("CronJob", "nightly") if cron else ("Job", name))


@pytest.mark.parametrize("name", ["train", "train-1", f"-{MINUTE}", "train-20260101"])
def test_a_job_with_another_number_is_a_job(name: str) -> None:
    """A date is no minute of these days."""
    assert found("Job", name) == ("Job", name)


def test_only_jobs_are_named_after_cronjobs() -> None:
    """A StatefulSet may have any number in its name; so may a Job of unknown age."""
    name = f"db-{MINUTE}"
    assert found("StatefulSet", name) == ("StatefulSet", name)
    assert found("Job", name, creation="") == ("Job", name)
