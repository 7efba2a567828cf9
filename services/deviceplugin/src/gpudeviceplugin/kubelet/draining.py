"""A planned stop fails no pod: the node is excluded from scheduling before the sockets close.

Schedulers learn from the inventory that the plugin is away. Pods that were bound before that still
get their devices.
"""

import asyncio
from typing import Final

import structlog

from gpudeviceplugin.cluster.publisher import Publisher
from gpudeviceplugin.state import NodeState
from gpukube.errors import KubeError

log = structlog.get_logger()

TELL_SECONDS: Final = 3.0
WAITING_SECONDS: Final = 5.0


class Drain:
    """The end of one plugin.

    Args:
        publisher: publishes that the node accepts no pods.
        settle_seconds: seconds that a scheduler may need to react to it.
    """

    def __init__(self, state: NodeState, publisher: Publisher, *, settle_seconds: float) -> None:
        self._state = state
        self._publisher = publisher
        self._settle_seconds = settle_seconds

    async def run(self) -> None:
        """Return when no pod needs this plugin any more, or after a bounded time."""
        if not self._state.serving:
            return
        try:
            async with asyncio.timeout(TELL_SECONDS):
                await self._publisher.withdraw()
        except (KubeError, TimeoutError) as error:
            log.warning("cannot exclude the node from scheduling", why=str(error))
            return
        await asyncio.sleep(self._settle_seconds)
        try:
            async with asyncio.timeout(WAITING_SECONDS):
                await self._all_served()
        except TimeoutError:
            names = [f"{pod.namespace}/{pod.name}" for pod in self._state.matcher.queue.unserved()]
            log.warning("stopping before kubelet has called Allocate for every pod", pods=names)

    async def _all_served(self) -> None:
        """Wait until kubelet has called Allocate for all pods that are bound to this node."""
        while self._state.matcher.queue.unserved():
            seen = self._state.pods_changed.count
            await self._state.pods_changed.beyond_or_after(seen, 0.1)
