"""Events on pods and on the node: the same sentence that is logged, where the user looks.

Best effort: an event that cannot be written is logged, and the work goes on.
"""

import time
import uuid
from datetime import UTC, datetime
from typing import Final, NamedTuple

import structlog

from gpucore.wire.names import PLUGIN
from gpukube.client import KubeClient
from gpukube.errors import KubeError

log = structlog.get_logger()

NORMAL: Final = "Normal"
WARNING: Final = "Warning"


class Subject(NamedTuple):
    """The object an event is about; a node has no namespace."""

    kind: str
    name: str
    namespace: str = ""
    uid: str = ""


class Events:
    """Writes events as this node's device plugin."""

    def __init__(self, kube: KubeClient, node: str) -> None:
        self._kube = kube
        self._node = node

    async def tell(
        self, subject: Subject, reason: str, message: str, *, kind: str = NORMAL
    ) -> None:
        """Write one event."""
        namespace = subject.namespace or "default"
        try:
            await self._kube.post(
                f"/api/v1/namespaces/{namespace}/events",
                self._event(subject, namespace, reason, message, kind),
            )
        except KubeError as error:
            log.warning("cannot write an event", about=subject.name, why=str(error))

    def _event(
        self, subject: Subject, namespace: str, reason: str, message: str, kind: str
    ) -> dict[str, object]:
        now = datetime.fromtimestamp(time.time(), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        involved = {"apiVersion": "v1", "kind": subject.kind, "name": subject.name}
        if subject.namespace:
            involved["namespace"] = subject.namespace
        return {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": f"{subject.name}.{uuid.uuid4().hex[:16]}", "namespace": namespace},
            "involvedObject": involved | ({"uid": subject.uid} if subject.uid else {}),
            "reason": reason,
            "message": message[:1024],
            "type": kind,
            "count": 1,
            "firstTimestamp": now,
            "lastTimestamp": now,
            "source": {"component": PLUGIN, "host": self._node},
        }
