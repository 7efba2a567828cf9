"""Checks of what pods ask: mistakes that keep them waiting, and ways around their share."""

from collections.abc import Iterator
from typing import Final

from gpucore.cardfit import per_card
from gpucore.wire.names import ENV_VISIBLE_DEVICES
from gpuinspect.doctor.checks import Checklist, Level
from gpuinspect.doctor.evidence import Evidence, called

check = Checklist()
_REFUSED: Final = ("UnexpectedAdmissionError", "OutOf")  # how kubelet begins its reason


@check(
    "requests-possible",
    Level.FAIL,
    "no pod asks for what no node could ever give",
    do="correct the pod as the sentence says",
)
def _faulty(evidence: Evidence) -> Iterator[str]:
    yield from (
        f"{called(pod)}: {demand.fault}" for pod, demand in evidence.demands if demand.fault
    )


@check(
    "requests-fit-a-card",
    Level.WARN,
    "no waiting pod asks for more than the largest card",
    do="check the unit (GiB or MiB), or spread the pod over cards with the label gpu-count",
)
def _too_large(evidence: Evidence) -> Iterator[str]:
    largest = max((account.shape.largest_card for _, account in evidence.sharing), default=0)
    for pod, demand in evidence.waiting:
        asked = per_card(demand)[0]
        if asked > largest:
            yield f"{called(pod)} asks for {asked} units, the largest card has {largest}"


@check(
    "no-gpu-count-request",
    Level.WARN,
    "no pod asks for gpu-count, which attaches nothing",
    do="ask for gpu-mem or gpu instead",
)
def _count(evidence: Evidence) -> Iterator[str]:
    for pod in evidence.snapshot.pods:
        if any(evidence.names.gpu_count in box.limits for box in pod.containers):
            yield f"{called(pod)} has a limit {evidence.names.gpu_count}"


@check(
    "no-visible-devices",
    Level.FAIL,
    "no pod chooses its cards itself",
    do=f"take {ENV_VISIBLE_DEVICES} out of the pod's env: it goes around the share",
)
def _visible(evidence: Evidence) -> Iterator[str]:
    for pod, _ in evidence.demands:
        boxes = [box.name for box in pod.containers if ENV_VISIBLE_DEVICES in box.env]
        if boxes:
            yield f"{called(pod)} sets it in container {', '.join(boxes)}"


@check(
    "no-privileged-share",
    Level.WARN,
    "no pod with a share is privileged",
    do="drop securityContext.privileged: a privileged container sees every card",
)
def _privileged(evidence: Evidence) -> Iterator[str]:
    for pod, _ in evidence.demands:
        if evidence.facts(pod).privileged:
            yield called(pod)


@check(
    "admitted",
    Level.FAIL,
    "kubelet admits the pods it is given",
    do="read the pod's message and the plugin's log; delete the pod once its cause is gone",
)
def _admitted(evidence: Evidence) -> Iterator[str]:
    for pod in evidence.snapshot.pods:
        if pod.phase == "Failed" and pod.reason.startswith(_REFUSED):
            yield f"{called(pod)} on {pod.node}: {pod.reason} {pod.message}".rstrip()


@check(
    "scheduler-looks",
    Level.WARN,
    "a scheduler looks at every waiting pod",
    do="see that a scheduler of the name in the pod's schedulerName runs",
)
def _looked(evidence: Evidence) -> Iterator[str]:
    for pod, _ in evidence.waiting:
        if not evidence.facts(pod).looked_at:
            yield f"{called(pod)}, which names {pod.scheduler_name or 'no scheduler'}"
