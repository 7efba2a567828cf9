"""Events on pods: where a pod went, or why it could not be bound.

They are recorded by :mod:`gpukube.events`, in the background: a bind never waits for one.
"""

from typing import Final

from gpucore.wire.pods import Pod
from gpuextender import metrics
from gpukube.client import KubeClient
from gpukube.events import EventRecorder, ObjectReference, Outcome, Source

COMPONENT: Final = "gpushare-extender"


class Recorder(EventRecorder):
    """Records events on pods.

    Args:
        instance: name of this replica.
    """

    def __init__(self, api: KubeClient, *, instance: str) -> None:
        super().__init__(api, Source(COMPONENT, instance), counted=_count)

    def note(self, pod: Pod, reason: str, message: str) -> None:
        """Something went as it should."""
        self.record(_reference(pod), "Normal", reason, message)

    def warn(self, pod: Pod, reason: str, message: str) -> None:
        """Something that the pod's owner should know."""
        self.record(_reference(pod), "Warning", reason, message)


def _reference(pod: Pod) -> ObjectReference:
    return ObjectReference("Pod", pod.name, pod.namespace, pod.uid)


def _count(outcome: Outcome) -> None:
    metrics.EVENTS.labels(outcome).inc()
