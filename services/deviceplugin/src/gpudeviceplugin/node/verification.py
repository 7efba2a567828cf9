"""Publishes the last results of ``gpushare verify`` on this node as metrics.

The command writes them into an annotation of the plugin's own pod: whoever may do that may also
replace the plugin.
"""

import asyncio

from gpucore.model import Inventory
from gpucore.units import PodUid
from gpucore.wire.names import VERIFIED
from gpucore.wire.verified import by_index, decode_verified
from gpudeviceplugin import telemetry
from gpudeviceplugin.signals import Signal
from gpudeviceplugin.state import NodeState

FAILED = "fail"
SKIPPED = "skip"


class VerificationMetrics:
    """Follows the annotation, and the indexes of the GPUs.

    Args:
        pod_uid: of the plugin's pod; without it there are no results.
    """

    def __init__(self, state: NodeState, pod_uid: str) -> None:
        self._state, self._uid = state, PodUid(pod_uid)
        self._shown: tuple[str, Inventory] | None = None

    async def run(self) -> None:
        """Follow the pod and the GPUs until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._follow(self._state.pods_changed))
            group.create_task(self._follow(self._state.inventory_changed))

    async def _follow(self, changes: Signal) -> None:
        while True:
            seen = changes.count
            self.show()
            await changes.beyond(seen)

    def show(self) -> None:
        """Publish the results as they are now."""
        pod = self._state.pods.get(self._uid)
        text = pod.annotations.get(VERIFIED, "") if pod else ""
        if (text, self._state.inventory) == self._shown:
            return
        self._shown = text, self._state.inventory
        found = decode_verified(text)
        telemetry.VERIFIED.clear()
        telemetry.VERIFIED_AT.set(found.at if found else 0)
        gpus = by_index(found, self._state.inventory.gpus) if found else {}
        for gpu, rows in gpus.items():
            for row, verdict in rows.items():
                if verdict != SKIPPED:
                    telemetry.VERIFIED.labels(gpu, row).set(verdict != FAILED)
