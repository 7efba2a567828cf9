"""Pods: all pending ones with their reasons, and one pod with its full explanation."""

from typing import Final

from gpucore.explain.groups import Group, figures
from gpucore.explain.pod_states import Explanation, PodState
from gpucore.wire.pod.scheduler_events import scheduler_record
from gpucore.wire.pod.spec import Pod
from gpuinspect.queries.scheduling_status import attempt, fitting_reason, refusals, unplaced_reason
from gpuinspect.web.frames import Frame
from gpuinspect.web.rendering import Link, Table, Timestamp, View, age_cell, pod_link, table

SHOWN: Final = 200  # oldest first; a longer list is counted
LONGEST: Final = 1000
"""Characters of a reason in the list; a tenant chooses names that are in it."""
UNEXPLAINED: Final = "not explained in this list: open the page of the pod"


def waiting(frame: Frame) -> View:
    """Every pending pod with its reason in one line."""
    rows = []
    for pod, pod_request in frame.waiting[:SHOWN]:
        found = frame.explain(pod) if pod.node else frame.reason(pod, pod_request)
        link = pod_link(pod.namespace, pod.name)
        reason = _short(frame, pod, found)
        if len(reason) > LONGEST:
            reason = f"{reason[:LONGEST]}… (the page of the pod has all of it)"
        since = Timestamp(pod.creation) if pod.creation else "unknown"
        age = age_cell(pod.creation, frame.taken)
        rows.append((link, found.request_summary, reason, age, since))
    heads = ("Pod", "Request", "Reason", "Age", "Since")
    shown = table(heads, rows, caption="Pods with GPU requests", stacks=True)
    return View("pods.html", {"waiting": shown, "rest": len(frame.waiting) - len(rows)})


def _short(frame: Frame, pod: Pod, found: Explanation) -> str:
    """The reason of ``pod``; ``found`` may be the explanation of an equal one."""
    if pod.node:
        return unplaced_reason(found)
    if not found.gates and (unseen := frame.unseen(pod)):
        return unseen
    if found.state is PodState.FITS:
        raw = frame.snapshot.raw_by_uid[pod.uid]
        return fitting_reason(found, pod, scheduler_record(raw, frame.snapshot.events))
    if found.gates or found.fits:
        return next(iter(found.helps), found.state.value)
    if found.state is PodState.UNDECIDED:
        message = found.scheduler_record.last_message
        return f"the scheduler reported: {message}" if message else UNEXPLAINED
    return refusals(found) or next(iter(found.helps), "no node offers GPUs")


def pod(frame: Frame, found: Explanation) -> View:
    """The GPUs of a pod, or the reasons by groups of nodes why it is pending, and suggestions."""
    pod, words = found.pod, found.scheduler_record.last_message
    has_page = frame.node(pod.node) is not None
    facts = (
        ("State", found.state.value),
        ("Age", age_cell(pod.creation, frame.taken) if pod.creation else ""),
        ("Request", found.request_summary),
        ("Placement", found.where),
        ("Reason for the placement", found.why),
        ("Policy", str(found.policy) if found.pod_request is not None else ""),
        ("Node", Link(pod.node, f"/nodes/{pod.node}") if has_page else pod.node),
        ("Scheduler", pod.scheduler_name if pod.node else _scheduler(found)),
        ("Scheduler message", "" if pod.node else words),
    )
    values = {
        "name": f"{pod.namespace}/{pod.name}",
        "facts": [(name, value) for name, value in facts if value],
        "neighbours": found.neighbours,
        "faults": found.faults,
        "groups": _groups(found.groups),
        "helps": found.helps,
    }
    return View("pod.html", values)


def _scheduler(found: Explanation) -> str:
    name = found.pod.scheduler_name
    return f"{name}, {attempt(found)}" if name else ""


def _groups(groups: tuple[Group, ...]) -> Table:
    rows = (
        (len(group.nodes), group.code.value, figures(group), group.example, group.remedy)
        for group in groups
    )
    heads = ("Nodes", "Reason", "Figures", "Example", "Next step")
    return table(heads, rows, caption="Nodes that do not fit", stacks=True)
