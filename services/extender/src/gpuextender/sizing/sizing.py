"""The parts that give pods their size, put together."""

import asyncio
from collections.abc import Callable, Collection
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Final

from gpucore.accounting.node_info import NodeInfo
from gpucore.sizing.evidence import SizingRules
from gpucore.sizing.known_histories import KnownHistories
from gpuextender.informers import Informers
from gpuextender.settings import ExtenderSettings
from gpuextender.sizing.namespaces import NamespaceRules
from gpuextender.sizing.reader import HistoryReader
from gpuextender.sizing.size_events import SizeEvents
from gpuextender.sizing.sizer import PodSizer

if TYPE_CHECKING:  # the import takes a while, and most processes read no histories
    from gpukube.blocking import BlockingClient

USER_AGENT: Final = "gpushare-webhook"
REQUEST_SECONDS: Final = 10.0
FRESH_READS: Final = 3
"""A read counts for as long as this number of intervals."""


class Sizing:
    """Histories, the choices of owners, and the decision; made only where it is enabled."""

    def __init__(self, settings: ExtenderSettings) -> None:
        self._settings = settings
        known = KnownHistories(FRESH_READS * settings.sizing_interval)
        self._namespaces = NamespaceRules(settings.names.gpu_mem)
        self._reader = HistoryReader(
            known,
            self._connect,
            namespace=settings.sizing_namespace,
            seconds=settings.sizing_interval,
        )
        rules = SizingRules(margin=settings.sizing_margin)
        self._sizer = PodSizer(settings.names, known, self._namespaces, rules)
        self._events = SizeEvents(known, self._namespaces, self._connect, rules)

    def followed_by(self, informers: Informers) -> PodSizer:
        """What decides about pods, with its collections followed by these informers."""
        informed = [informers.follow(*each) for each in self._namespaces.followed()]
        self._namespaces.known = lambda: all(each.synced.is_set() for each in informed)
        return self._sizer

    async def run(self, node_infos: Callable[[], Collection[NodeInfo]]) -> None:
        """Read the histories, and record recommended sizes, until cancelled.

        Args:
            node_infos: state of all nodes; none while it is unknown.
        """
        async with asyncio.TaskGroup() as group:
            group.create_task(self._reader.run())
            group.create_task(self._events.run(node_infos))

    def _connect(self) -> "AbstractContextManager[BlockingClient]":
        from gpukube.blocking import BlockingClient  # noqa: PLC0415 - the import takes a while

        return BlockingClient.connect(
            self._settings.kubeconfig, user_agent=USER_AGENT, seconds=REQUEST_SECONDS
        )
