"""Publishes the last results of ``gpushare verify`` on this node as metrics.

The command writes them into an annotation of the plugin's own pod: whoever may do that may also
replace the plugin.
"""

from gpucore.units import PodUid
from gpucore.wire.names import VERIFIED
from gpucore.wire.verified import VerifiedNode, decode_verified
from gpudeviceplugin import telemetry
from gpudeviceplugin.state import NodeState

FAILED = "fail"
SKIPPED = "skip"


class VerificationMetrics:
    """Follows the annotation.

    Args:
        pod_uid: of the plugin's pod; without it there are no results.
    """

    def __init__(self, state: NodeState, pod_uid: str) -> None:
        self._state, self._uid = state, PodUid(pod_uid)
        self._shown = ""

    async def run(self) -> None:
        """Follow the pod until cancelled."""
        while True:
            seen = self._state.pods_changed.count
            self.show()
            await self._state.pods_changed.beyond(seen)

    def show(self) -> None:
        """Publish the results as they are now."""
        pod = self._state.pods.get(self._uid)
        text = pod.annotations.get(VERIFIED, "") if pod else ""
        if text == self._shown:
            return
        self._shown = text
        found = decode_verified(text)
        telemetry.VERIFIED.clear()
        telemetry.VERIFIED_AT.set(found.at if found else 0)
        if found is not None:
            _publish(found)


def _publish(found: VerifiedNode) -> None:
    for gpu, rows in found.gpus.items():
        for row, verdict in rows.items():
            if verdict != SKIPPED:
                telemetry.VERIFIED.labels(gpu, row).set(verdict != FAILED)
