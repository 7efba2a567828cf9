"""Reads the histories of all device plugins in the background.

Through the API server's proxy to pods of one namespace, that of the release, which tenants cannot
create pods in. Replies are bounded in size and time, and at most :data:`PART` of them are in memory
at once. Admission never waits for a read.
"""

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Final

import structlog

from gpucore.sizing.history_documents import HISTORIES
from gpucore.sizing.known_histories import HistoryRead, KnownHistories, MergedHistories
from gpucore.wire.errors import WireError
from gpuextender import metrics
from gpukube.errors import ConfigError, KubeError
from gpukube.plugin_pods import SELECTOR, PluginAddress, plugin_addresses, pods_in
from gpukube.plugins import MOST_PLUGINS, read_plugins

if TYPE_CHECKING:  # the import takes a while, and most processes read no histories
    from gpukube.blocking import BlockingClient

PART: Final = 24
RETRY_SECONDS: Final = 30.0
WINDOW_SECONDS: Final = 7 * 24 * 3600.0
"""A workload that was not measured for this time is left as it is."""
Connect = Callable[[], AbstractContextManager["BlockingClient"]]

log = structlog.get_logger(__name__)


class HistoryReader:
    """Reads periodically.

    Args:
        connect: a client of the API server for one read.
        namespace: of the device plugins.
        seconds: between two reads.
    """

    def __init__(
        self, known: KnownHistories, connect: Connect, *, namespace: str, seconds: float
    ) -> None:
        self._known, self._connect = known, connect
        self._namespace, self._seconds = namespace, seconds

    async def run(self) -> None:
        """Read until cancelled; a failed read leaves what is known."""
        while True:
            done = await self.read_once()
            await asyncio.sleep(self._seconds if done else min(self._seconds, RETRY_SECONDS))

    async def read_once(self) -> bool:
        """Read all plugins; false where not even their pods could be listed."""
        try:
            found = await asyncio.to_thread(self._read)
        except (KubeError, ConfigError, WireError, ValueError) as error:
            metrics.SIZING_READS.labels("failed").inc()
            log.warning("the usage histories are not read", why=str(error))
            return False
        metrics.SIZING_READS.labels("complete" if found.whole else "incomplete").inc()
        self._known.put(found)
        return True

    def _read(self) -> HistoryRead:
        """Runs in a thread of its own.

        Raises:
            KubeError: the pods of the plugins cannot be listed.
        """
        merged = MergedHistories(time.time(), window_seconds=WINDOW_SECONDS)
        failures: dict[str, str] = {}
        with self._connect() as kube:
            plugins = self._plugins(kube)
            for start in range(0, len(plugins), PART):
                failures |= _read_part(kube, plugins[start : start + PART], merged)
        whole = not failures and 0 < len(plugins) <= MOST_PLUGINS
        for node, why in sorted(failures.items())[:3]:
            log.warning("a device plugin has no usage history", node=node, why=why)
        return HistoryRead(time.monotonic(), merged.complete(), whole)

    def _plugins(self, kube: "BlockingClient") -> list[PluginAddress]:
        """The plugins of the release, one a node."""
        path = f"/api/v1/namespaces/{self._namespace}/pods"
        pages: Iterator[bytes] = kube.pages(path, {"labelSelector": SELECTOR}, cached=True)
        found = sorted(plugin_addresses(pod for page in pages for pod in pods_in(page)))
        return sorted({each.node: each for each in found}.values())[: MOST_PLUGINS + 1]


def _read_part(
    kube: "BlockingClient", plugins: Sequence[PluginAddress], merged: MergedHistories
) -> dict[str, str]:
    """Add the histories of some nodes; returns why others have none."""
    replies = read_plugins(kube, plugins, HISTORIES)
    for _, found in sorted(replies.nodes.items()):
        merged.add(found.items)
    return dict(replies.failures)
