"""Counting pods as they are bound, on a watch."""

import asyncio
from typing import Self

import msgspec
from yarl import URL

from environments.apicall import ApiCalls


class _Meta(msgspec.Struct):
    name: str = ""


class _Pod(msgspec.Struct):
    metadata: _Meta


class _Event(msgspec.Struct):
    object: _Pod


_EVENT = msgspec.json.Decoder(_Event)


class BoundCounter:
    """Counts the pods of one name prefix that have a node; use as ``async with``.

    Args:
        calls: to the API server.
        prefix: of the names that count.
    """

    def __init__(self, calls: ApiCalls, *, prefix: str) -> None:
        self.calls = calls
        self.prefix = prefix
        self.bound: set[str] = set()
        self._changed = asyncio.Condition()
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        """Count from the present version on."""
        page = await self.calls.call("GET", "/api/v1/pods?limit=1")
        version = msgspec.json.decode(page)["metadata"]["resourceVersion"]
        self._task = asyncio.create_task(self._watch(version))
        return self

    async def __aexit__(self, *_: object) -> None:
        """Stop watching."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def wait(self, count: int, *, seconds: float) -> None:
        """Return when ``count`` pods are bound; TimeoutError after the deadline."""
        async with asyncio.timeout(seconds), self._changed:
            await self._changed.wait_for(lambda: len(self.bound) >= count)

    async def _watch(self, version: str) -> None:
        path = (
            f"/api/v1/pods?watch=true&resourceVersion={version}&timeoutSeconds=3600"
            "&fieldSelector=spec.nodeName!%3D"  # bound ones only: a pod comes once it has a node
        )
        async with self.calls.session.get(URL(path, encoded=True), timeout=None) as stream:
            async for line in stream.content:
                name = _EVENT.decode(line).object.metadata.name
                if name.startswith(self.prefix):
                    async with self._changed:
                        self.bound.add(name)
                        self._changed.notify_all()
