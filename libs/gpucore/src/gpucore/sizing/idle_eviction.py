"""Whether an idle pod is noticed, waits for the end of its grace time, is evicted, or is spared.

Two runs are needed at least: the first gives notice, and a later one evicts once the grace time is
over, if the pod was idle for all of it.

The notice is an annotation that its tenant can read, and can forge. A notice counts for the pod
whose UID it has, and only from a time on at which that pod was idle already. So a copy in a
template counts for no pod, and use of the GPU ends a notice. Whatever a tenant writes concerns the
pod that it is written on.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Final

import msgspec

from gpucore.units import PodUid
from gpucore.wire.names import (
    IDLE_ALLOWED,
    IDLE_NOTICE,
    NOTEBOOK_LAST_ACTIVITY,
    NOTEBOOK_NAME,
    NOTEBOOK_STOPPED,
)
from gpucore.wire.pod.controllers import Controller
from gpucore.wire.pod.gangs import may_be_in_gang, restarts_others
from gpucore.wire.pod.spec import Pod, created
from gpucore.wire.quantity import unix_seconds

_LATEST: Final = 2**37
"""Unix time of a date that every program can write."""
_Seconds = Annotated[int, msgspec.Meta(ge=0, le=_LATEST)]
FRESH_SECONDS: Final = 300.0
"""Age of a measurement from which on it is none; also how far clocks may differ."""
SAME_NODE: Final = frozenset({"DaemonSet", "Node"})
"""Controllers whose pods return to the same node at once."""


class IdleNotice(msgspec.Struct, frozen=True, rename="camel"):
    """What the annotation has.

    Attributes:
        pod: UID of the pod that was noticed.
        noticed_at: Unix seconds of the notice.
        evict_after: Unix seconds before which the pod is not evicted, as its owner was told.
    """

    pod: str
    noticed_at: _Seconds
    evict_after: _Seconds


def notice_text(notice: IdleNotice) -> str:
    """The value of the annotation."""
    return msgspec.json.encode(notice).decode()


def notice_of(
    annotations: Mapping[str, str], uid: PodUid, *, idle_since: float, now: float
) -> IdleNotice | None:
    """The notice that a pod has had since it became idle; ``None`` where it has none that counts.

    Args:
        idle_since: Unix seconds from which on it used nothing.
        now: Unix seconds.
    """
    try:
        found = msgspec.json.decode(annotations.get(IDLE_NOTICE, ""), type=IdleNotice)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None
    counts = found.pod == uid and idle_since <= found.noticed_at <= now
    return found if counts else None


class IdleStep(StrEnum):
    """What becomes of an idle pod in one run."""

    NOTICE = "notice"
    WAIT = "wait"
    EVICT = "evict"
    SPARE = "spare"


class IdleRules(msgspec.Struct, frozen=True):
    """What an operator set.

    Attributes:
        idle_seconds: for how long a pod must have used nothing before it is noticed.
        grace_seconds: from the notice to the eviction, at least.
        bare_pods: pods without a controller, which nobody creates again, are evicted too.
    """

    idle_seconds: float
    grace_seconds: float
    bare_pods: bool = False


class MeasuredPod(msgspec.Struct, frozen=True):
    """A pod with GPUs, and what is known of its use.

    Attributes:
        idle_since: Unix seconds from which on its GPUs had no memory of it in use; 0: they have.
            ``None`` where it is not known.
        measured_at: Unix seconds of the last measurement on its node.
        gpus: number of GPUs that it has.
    """

    pod: Pod
    controller: Controller | None
    idle_since: float | None
    measured_at: float
    gpus: int = 1

    @property
    def uid(self) -> PodUid:
        return self.pod.uid

    @property
    def namespace(self) -> str:
        return self.pod.namespace

    @property
    def name(self) -> str:
        return self.pod.name

    @property
    def resource_version(self) -> str:
        """Of the object that was read."""
        return self.pod.resource_version

    @property
    def last_use(self) -> float:
        """Unix seconds of its last known use: of a GPU, or of a notebook by its annotation."""
        return max(self.idle_since or 0.0, _last_activity(self.pod))

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


class IdleDecision(msgspec.Struct, frozen=True):
    """What becomes of a pod that was idle for long enough.

    Attributes:
        evict_after: Unix seconds before which it is not evicted; 0 for a pod that is spared.
        reason: why it is spared; empty for others.
    """

    pod: MeasuredPod
    step: IdleStep
    evict_after: float = 0.0
    reason: str = ""


def decide(measured: MeasuredPod, rules: IdleRules, now: float) -> IdleDecision | None:
    """What becomes of a pod at a time in Unix seconds; ``None`` for one that is not idle.

    A pod of which it is not known whether it is idle is spared.
    """
    if measured.idle_since == 0 or measured.pod.finished or measured.pod.terminating:
        return None
    if reason := unknown_reason(measured.pod, measured.idle_since, measured.measured_at, now):
        return IdleDecision(measured, IdleStep.SPARE, reason=reason)
    if now - measured.last_use < rules.idle_seconds:
        return None
    if reason := _spared(measured, rules):
        return IdleDecision(measured, IdleStep.SPARE, reason=reason)
    notice = notice_of(
        measured.pod.annotations, measured.uid, idle_since=measured.last_use, now=now
    )
    if notice is None:
        return IdleDecision(measured, IdleStep.NOTICE, evict_after=now + rules.grace_seconds)
    after = _evict_after(notice, rules)
    return IdleDecision(measured, IdleStep.EVICT if now >= after else IdleStep.WAIT, after)


def _evict_after(notice: IdleNotice, rules: IdleRules) -> float:
    """The later of what the owner was told and what the operator sets now."""
    return max(notice.evict_after, notice.noticed_at + rules.grace_seconds)


def unknown_reason(pod: Pod, idle_since: float | None, measured_at: float, now: float) -> str:
    """Why the measurements do not show that a pod is idle; empty where they do.

    Args:
        idle_since: Unix seconds from which on it was idle; ``None`` where it is not known.
        measured_at: Unix seconds of the last measurement on its node.
        now: Unix seconds.
    """
    if idle_since is None:
        return "it is not known whether it uses memory"
    if abs(now - measured_at) > FRESH_SECONDS:
        return f"the last measurement on its node is not of the last {FRESH_SECONDS:.0f} s"
    if not created(pod) or idle_since < created(pod):
        return "the measurements began before it was created, so they are of another pod"
    return ""


def _spared(measured: MeasuredPod, rules: IdleRules) -> str:
    """Why an idle pod is not evicted."""
    pod, controller = measured.pod, measured.controller
    if pod.labels.get(IDLE_ALLOWED) == "true":
        return f"it has the label {IDLE_ALLOWED}=true"
    if pod.phase != "Running":
        return "it has not started"
    if may_be_in_gang(pod):
        return "it is a member of a gang, whose other pods would stand still"
    if others := restarts_others(pod):
        return others
    if controller is None:
        return "" if rules.bare_pods else "no controller would create it again"
    return _created_again(pod, controller)


def _created_again(pod: Pod, controller: Controller) -> str:
    """Why an eviction would be in vain."""
    if controller.kind in SAME_NODE:
        return f"its {controller.kind} would create it again on the same node"
    if notebook := pod.labels.get(NOTEBOOK_NAME):
        return (
            f"Notebook {notebook} would create it again: stop it by the annotation "
            f"{NOTEBOOK_STOPPED} of the Notebook"
        )
    return ""


def _last_activity(pod: Pod) -> float:
    """Unix seconds of a notebook's last activity; 0 where the pod has no such annotation."""
    return min(unix_seconds(pod.annotations.get(NOTEBOOK_LAST_ACTIVITY)), float(_LATEST))
