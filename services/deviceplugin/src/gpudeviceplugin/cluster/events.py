"""Events on pods and on the node, with the same message as the log.

They are recorded by :mod:`gpukube.events`, in the background and under a rate limit.
"""

from typing import Final

from gpucore.wire.names import PLUGIN
from gpukube.client import KubeClient
from gpukube.events import EventRecorder, EventSource, EventType, ObjectReference

NORMAL: Final[EventType] = "Normal"
WARNING: Final[EventType] = "Warning"

Subject = ObjectReference


class Events(EventRecorder):
    """Records events as this node's device plugin, which may create and not patch them."""

    def __init__(self, kube: KubeClient, node: str) -> None:
        super().__init__(kube, EventSource(PLUGIN, node, host=node, may_patch=False))

    async def event(
        self, subject: Subject, reason: str, message: str, *, kind: EventType = NORMAL
    ) -> None:
        """Record an event; another message about the same object is another event."""
        self.record(subject, kind, reason, message, topic=message)
