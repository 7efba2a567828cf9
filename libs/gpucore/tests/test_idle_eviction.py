"""Which idle pods are noticed, evicted and spared, and what a tenant can do about it."""

from typing import Any

import msgspec
import pytest

from gpucore.sizing.idle_eviction import (
    IdleNotice,
    IdleRules,
    IdleStep,
    MeasuredPod,
    decide,
    notice_text,
)
from gpucore.units import PodUid
from gpucore.wire.names import IDLE_NOTICE
from gpucore.wire.pod.controllers import Controller
from gpucore.wire.pod.spec import Pod

HOUR = 3600.0
CREATED = "2026-01-01T00:00:00Z"
START = 1_767_225_600.0
NOW = START + 100 * HOUR
RULES = IdleRules(idle_seconds=12 * HOUR, grace_seconds=24 * HOUR)
OWNER = Controller("apps/v1", "ReplicaSet", "web", "uid-web", controller=True)
JOB = Controller("batch/v1", "Job", "train", "uid-train", controller=True)


def measured(
    *, idle: float | None = 50, age: float = 1, owner: Controller | None = OWNER, **fields: Any
) -> MeasuredPod:
    """A running pod, idle for so many hours; its node was measured ``age`` seconds ago."""
    pod = Pod(PodUid("u1"), "team", "web-0", phase="Running", creation=CREATED)
    since = idle if not idle else NOW - idle * HOUR
    return MeasuredPod(msgspec.structs.replace(pod, **fields), owner, since, NOW - age)


def noticed(hours: float, *, uid: str = "u1", after: float = 24) -> dict[str, str]:
    """The annotation of a notice so many hours ago."""
    at = int(NOW - hours * HOUR)
    notice = IdleNotice(uid, at, at + int(after * HOUR))
    return {IDLE_NOTICE: notice_text(notice)}


def step(pod: MeasuredPod, rules: IdleRules = RULES) -> str:
    """What becomes of it; empty for a pod that is not idle."""
    found = decide(pod, rules, NOW)
    return "" if found is None else str(found.step)


def reason(pod: MeasuredPod) -> str:
    """Why it is spared."""
    found = decide(pod, RULES, NOW)
    assert found is not None
    assert found.step is IdleStep.SPARE
    return found.reason


def test_notice_comes_first_then_the_grace_time_then_the_eviction() -> None:
    """The first run evicts nothing, however long a pod was idle."""
    assert step(measured(idle=99)) == "notice"
    assert step(measured(annotations=noticed(23))) == "wait"
    assert step(measured(annotations=noticed(24))) == "evict"


def test_bounds_belong_to_the_times_that_they_end() -> None:
    """Idle for exactly the time set, measured at the last moment, noticed as it became idle."""
    assert step(measured(idle=12)) == "notice"
    assert step(measured(age=300)) == step(measured(age=-300)) == "notice"
    assert step(measured(idle=100)) == "notice"
    assert step(measured(idle=50, annotations=noticed(50))) == "evict"
    assert step(measured(annotations=noticed(0))) == "wait"


def test_a_decision_has_the_time_before_which_nothing_is_evicted() -> None:
    """A new notice promises the whole grace time from now on; the later of two times counts."""
    longer = IdleRules(idle_seconds=HOUR, grace_seconds=48 * HOUR)
    for pod, rules, hours in [
        (measured(), RULES, 24),
        (measured(annotations=noticed(23)), RULES, 1),
        (measured(annotations=noticed(23)), longer, 25),
        (measured(annotations=noticed(23, after=30)), RULES, 7),
    ]:
        found = decide(pod, rules, NOW)
        assert found is not None
        assert (found.pod, found.evict_after) == (pod, NOW + hours * HOUR)


@pytest.mark.parametrize("idle", [0, 11.9])
def test_a_pod_that_used_its_gpu_is_left_alone(idle: float) -> None:
    """Whatever its annotation has."""
    assert step(measured(idle=idle, annotations=noticed(90))) == ""


def test_use_of_the_gpu_ends_a_notice() -> None:
    """Idle again, the pod gets another notice and the whole grace time."""
    assert step(measured(idle=20, annotations=noticed(30))) == "notice"


def test_the_owner_keeps_the_time_that_the_notice_promised() -> None:
    """A run with a shorter grace time does not evict earlier; a longer one waits longer."""
    shorter = IdleRules(idle_seconds=HOUR, grace_seconds=HOUR)
    longer = IdleRules(idle_seconds=HOUR, grace_seconds=48 * HOUR)
    pod = measured(annotations=noticed(23))
    assert step(pod, shorter) == "wait"
    assert step(measured(annotations=noticed(47)), longer) == "wait"


@pytest.mark.parametrize(
    "annotations",
    [
        noticed(40, uid="of another pod"),
        noticed(60),
        noticed(-1),
        {IDLE_NOTICE: "soon"},
        {IDLE_NOTICE: "[" * 100_000},
        {IDLE_NOTICE: '{"pod":"u1","noticedAt":-1,"evictAfter":0}'},
        {IDLE_NOTICE: '{"pod":"u1","noticedAt":1,"evictAfter":1e400}'},
        {IDLE_NOTICE: f'{{"pod":"u1","noticedAt":{int(NOW - HOUR)},"evictAfter":{10**30}}}'},
        {},
    ],
    ids=["template", "before idle", "future", "text", "nested", "negative", "inf", "huge", "none"],
)
def test_a_forged_notice_counts_as_none(annotations: dict[str, str]) -> None:
    """So does one that was copied from another pod with its template, or removed."""
    assert step(measured(annotations=annotations)) == "notice"


@pytest.mark.parametrize(
    ("pod", "words"),
    [
        (measured(labels={"gpushare/idle-allowed": "true"}), "gpushare/idle-allowed=true"),
        (measured(owner=None), "no controller"),
        (measured(owner=Controller(kind="DaemonSet", controller=True)), "DaemonSet"),
        (measured(owner=Controller(kind="Node", controller=True)), "same node"),
        (measured(labels={"gpu-topology": "g", "gpu-topology-replica": "2"}), "gang"),
        (measured(labels={"pod-group.scheduling.sigs.k8s.io/name": "g"}), "gang"),
        (measured(pod_group="g"), "gang"),
        (measured(labels={"leaderworkerset.sigs.k8s.io/name": "llm"}), "LeaderWorkerSet"),
        (measured(phase="Pending"), "has not started"),
        (measured(labels={"notebook-name": "nb"}), "kubeflow-resource-stopped of the Notebook"),
        (measured(idle=None), "not known"),
        (measured(age=301), "last measurement"),
        (measured(age=-301), "last measurement"),
        (measured(idle=101), "of another pod"),
        (measured(creation="long ago"), "of another pod"),
    ],
)
def test_pods_that_are_never_evicted_have_a_reason(pod: MeasuredPod, words: str) -> None:
    """A notice on them changes nothing."""
    raw = msgspec.structs.replace(pod.pod, annotations=noticed(40))
    assert words in reason(msgspec.structs.replace(pod, pod=raw))


def test_a_pod_without_a_controller_is_evicted_where_the_operator_wants_it() -> None:
    """Nobody creates it again."""
    rules = msgspec.structs.replace(RULES, bare_pods=True)
    assert step(measured(owner=None), rules) == "notice"
    assert step(measured(owner=JOB)) == "notice"


def test_activity_of_a_notebook_counts_as_use() -> None:
    """By the annotation of its culler; text that is no time counts for nothing."""
    key = "notebooks.kubeflow.org/last-activity"
    for moment, expected in [
        ("2026-01-05T03:00:00Z", ""),
        ("2027-01-01T00:00:00Z", ""),
        ("2026-01-04T00:00:00Z", "notice"),
        ("yesterday", "notice"),
        ("2026-01-05T03:00:00", "notice"),
    ]:
        assert step(measured(annotations={key: moment})) == expected
    recent = {key: "2026-01-04T00:00:00Z"}
    assert step(measured(idle=99, annotations=recent | noticed(40))) == "notice"


def test_pods_that_ended_or_are_being_deleted_hold_nothing() -> None:
    """They are not listed."""
    assert step(measured(phase="Succeeded")) == ""
    assert step(measured(terminating=True)) == ""
