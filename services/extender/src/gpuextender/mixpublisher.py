"""Publishes the mix in use in the ConfigMap of the history, for commands that predict placements.

A mix is published once every node compares placements by it, by the process that decides, and only
where it differs from the last one: at most one write every few seconds, and none while the mix
stays. Until the write arrives, readers have the mix before. A process that begins to decide
replaces what another one published; what an earlier process left is older than the start of this
one, by which readers know it.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from time import time
from typing import Final

import msgspec
import structlog

from gpucore.wire.configmaps import decode_config_map
from gpucore.wire.errors import WireError
from gpucore.workload.mix_in_use import KEY, encode_mix
from gpucore.workload.pod_mix import PodMix
from gpukube.client import KubeClient
from gpukube.errors import KubeError

WRITE_SECONDS: Final = 5.0
"""Pause after a write or a failure."""
LOOK_SECONDS: Final = 10.0
"""A process notices that it decides after this time at the latest."""
READ_SECONDS: Final = 300.0
"""What is published is read again after this time: a restored API server has what was before."""
CALLED_SECONDS: Final = 600.0
"""Without a Lease, the processes decide that a scheduler called in this time."""

log = structlog.get_logger(__name__)


class MixPublisher:
    """Writes one key of the ConfigMap.

    Args:
        where: namespace and name of the ConfigMap, separated by a slash; empty: nothing is written.
        term: another number each time that another process decided before; ``None`` while this
            process does not decide.
        clock: Unix seconds.
    """

    def __init__(
        self,
        api: KubeClient,
        where: str,
        term: Callable[[], Awaitable[int | None]],
        *,
        clock: Callable[[], float] = time,
    ) -> None:
        self._api, self._term, self._clock = api, term, clock
        namespace, _, name = where.partition("/")
        self._where = where
        self._path = f"/api/v1/namespaces/{namespace}/configmaps/{name}"
        self._changed = asyncio.Event()
        self._used = False
        self._mix: PodMix | None = None
        self._text: str | None = None
        self._published: str | None = None
        self._published_in: int | None = None
        self._read_at = 0.0

    def use(self, mix: PodMix | None) -> None:
        """All nodes compare placements by this mix now; ``None`` is the guess."""
        if not self._used or mix is not self._mix:
            self._used, self._mix, self._text = True, mix, self._document(mix)
            self._changed.set()

    async def run(self) -> None:
        """Publish for ever."""
        await self._changed.wait()
        while True:
            self._changed.clear()
            pause = WRITE_SECONDS if await self.publish() else 0.0
            await asyncio.sleep(pause)
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOK_SECONDS):
                    await self._changed.wait()

    async def publish(self) -> bool:
        """Write where this process decides and another mix is published; whether it tried to."""
        term = await self._term() if self._where else None
        if term is None or asyncio.get_running_loop().time() - self._read_at >= READ_SECONDS:
            self._published_in = None
        if term is None or (term == self._published_in and self._text == self._published):
            return False
        try:
            await self._write(term)
        except (KubeError, WireError) as error:
            log.info("mix not published", config_map=self._where, error=str(error))
        return True

    async def _write(self, term: int) -> None:
        text = self._text
        if term != self._published_in:
            data = decode_config_map(await self._api.get(self._path)).data
            self._published = data.get(KEY)
            self._read_at = asyncio.get_running_loop().time()
        if text != self._published:
            await self._api.patch(self._path, msgspec.json.encode({"data": {KEY: text}}))
        self._published, self._published_in = text, term

    def _document(self, mix: PodMix | None) -> str | None:
        """Text of the mix; ``None``, which removes the key, where it would be too large."""
        try:
            return encode_mix(mix, self._clock())
        except WireError as error:
            log.warning("mix is too large to publish", config_map=self._where, error=str(error))
            return None
