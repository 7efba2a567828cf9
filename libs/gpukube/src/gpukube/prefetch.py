"""A reply that is read before it is needed."""

import asyncio
from collections.abc import AsyncGenerator


class Prefetch:
    """Reads a body in the background, and keeps what has arrived until it is taken.

    Args:
        name: of what is read, for the name of the task.
        body: its chunks.
    """

    def __init__(self, name: str, body: AsyncGenerator[bytes, None]) -> None:
        self._arrived: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._task = asyncio.create_task(self._read(body), name=f"prefetch {name}")

    async def chunks(self) -> AsyncGenerator[bytes, None]:
        """What has arrived, then the rest as it arrives; once.

        Raises what the chunks of the body raise.
        """
        try:
            while (chunk := await self._arrived.get()) is not None:
                yield chunk
            await self._task
        finally:
            await self.close()

    async def close(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _read(self, body: AsyncGenerator[bytes, None]) -> None:
        try:
            async for chunk in body:
                self._arrived.put_nowait(chunk)
        finally:
            self._arrived.put_nowait(None)
