"""Keeps the history of the pods that usually come in a ConfigMap, so that it outlives the process.

The ConfigMap exists beforehand, and the process may read and patch this one alone. It is read at
the start; what is no history of pods is ignored. It is written by the process that leads, every few
minutes where pods came since. While it cannot be read nothing is kept, and the extender learns
from the pods that exist.
"""

import asyncio
from collections.abc import Awaitable, Callable
from time import time
from typing import Final

import msgspec
import structlog

from gpucore.wire.configmaps import decode_config_map
from gpucore.wire.errors import WireError
from gpucore.workload.arrivals import HISTORY_KEY, decode_history, encode_history
from gpucore.workload.history import PodHistory
from gpukube.client import KubeClient
from gpukube.errors import KubeError
from gpukube.server.time_slices import TimeSlices

LOAD_SECONDS: Final = 2.0
"""The first decision waits no longer for the history."""
RETRY_SECONDS: Final = 30.0
SAVE_SECONDS: Final = 300.0

log = structlog.get_logger(__name__)


class MixHistory:
    """Reads and writes the ConfigMap.

    Args:
        where: namespace and name of the ConfigMap, separated by a slash; empty: nothing is kept.
        leads: whether this process writes.
        clock: Unix seconds.
    """

    def __init__(
        self,
        history: PodHistory,
        api: KubeClient,
        where: str,
        leads: Callable[[], Awaitable[bool]],
        *,
        clock: Callable[[], float] = time,
    ) -> None:
        self._history, self._api, self._leads, self._clock = history, api, leads, clock
        namespace, _, name = where.partition("/")
        self._where = where
        self._path = f"/api/v1/namespaces/{namespace}/configmaps/{name}"
        self._read, self._saved = False, ""

    async def load(self) -> None:
        """Take over what was saved, unless it was read already; a failure is no error."""
        if self._read or not self._where:
            return
        try:
            async with asyncio.timeout(LOAD_SECONDS):
                raw = await self._api.get(self._path)
        except (KubeError, TimeoutError) as error:
            log.info("history of pods not read", config_map=self._where, error=str(error))
            return
        self._read = True
        self._restore(raw)

    async def run(self) -> None:
        """Save for ever; what is not read yet is read first, for it must not be lost."""
        while True:
            await self.load()
            await asyncio.sleep(SAVE_SECONDS if self._read or not self._where else RETRY_SECONDS)
            await self.save()

    async def save(self) -> None:
        """Write where this process leads, and the history changed."""
        if not (self._read and await self._leads()):
            return
        text = encode_history(await TimeSlices().finish(self._history.saved()))
        if text == self._saved:
            return
        try:
            await self._api.patch(self._path, msgspec.json.encode({"data": {HISTORY_KEY: text}}))
        except KubeError as error:
            log.info("history of pods not saved", config_map=self._where, error=str(error))
        else:
            self._saved = text

    def _restore(self, raw: bytes) -> None:
        try:
            text = decode_config_map(raw).data.get(HISTORY_KEY, "")
            saved = decode_history(text, self._clock()) if text else None
        except WireError as error:
            log.warning("history of pods ignored", config_map=self._where, error=str(error))
            return
        if saved is not None:
            self._history.restore(saved)
            self._saved = text
            log.info("history of pods read", config_map=self._where, pods=saved.pods)
