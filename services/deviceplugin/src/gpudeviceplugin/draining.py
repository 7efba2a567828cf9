"""A planned stop fails no pod: the node is held out of placement before the sockets close.

Schedulers learn from the inventory that the plugin is away. Pods that were bound before that still
get their devices.
"""

import asyncio
from typing import Final

import structlog

from gpudeviceplugin.publish import Publisher
from gpudeviceplugin.state import NodeState
from gpukube.errors import KubeError

log = structlog.get_logger()

TELL_SECONDS: Final = 3.0
WAITING_SECONDS: Final = 5.0


class Drain:
    """The end of one plugin.

    Args:
        state: of the node.
        publisher: tells the schedulers.
        settle: seconds that a scheduler may need to act upon the news.
    """

    def __init__(self, state: NodeState, publisher: Publisher, *, settle: float) -> None:
        self._state = state
        self._publisher = publisher
        self._settle = settle

    async def run(self) -> None:
        """Return when nobody needs this plugin any more, or after a bounded time."""
        if not self._state.serving:
            return
        try:
            async with asyncio.timeout(TELL_SECONDS):
                await self._publisher.withdraw()
        except (KubeError, TimeoutError) as error:
            log.warning("cannot hold the node out of placement", why=str(error))
            return
        await asyncio.sleep(self._settle)
        try:
            async with asyncio.timeout(WAITING_SECONDS):
                await self._all_served()
        except TimeoutError:
            names = [f"{pod.namespace}/{pod.name}" for pod in self._state.steering.queue.unserved()]
            log.warning("stopping although kubelet has not asked for every pod", pods=names)

    async def _all_served(self) -> None:
        """Until kubelet has asked for all pods that are bound to this node."""
        while self._state.steering.queue.unserved():
            seen = self._state.pods_changed.count
            await self._state.pods_changed.beyond_or_after(seen, 0.1)
