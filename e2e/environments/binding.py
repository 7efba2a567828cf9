"""Counting pods as they are bound, on a watch."""

import asyncio
from collections.abc import Iterable
from time import perf_counter
from typing import Self

import msgspec
from yarl import URL

from environments.apicall import ApiCalls


class _Meta(msgspec.Struct, rename="camel"):
    name: str = ""
    resource_version: str = ""


class _Pod(msgspec.Struct):
    metadata: _Meta


class _Event(msgspec.Struct):
    object: _Pod


class _List(msgspec.Struct):
    metadata: _Meta
    items: list[_Pod]


_EVENT = msgspec.json.Decoder(_Event)
_LIST = msgspec.json.Decoder(_List)
_BOUND = "fieldSelector=spec.nodeName!%3D"  # a pod comes once it has a node


class BoundCounter:
    """Counts the pods of one name prefix that have a node; use as ``async with``.

    Args:
        calls: to the API server.
        prefix: of the names that count.

    Attributes:
        bound_at: value of the performance counter when a pod was first seen with a node, by name.
    """

    def __init__(self, calls: ApiCalls, *, prefix: str) -> None:
        self.calls = calls
        self.prefix = prefix
        self.bound_at: dict[str, float] = {}
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
            await self._changed.wait_for(lambda: len(self.bound_at) >= count)

    async def _watch(self, version: str) -> None:
        """Follow; the API server ends a watch that reads too slowly, so look and follow again."""
        while True:
            await self._follow(version)
            page = _LIST.decode(await self.calls.call("GET", f"/api/v1/pods?{_BOUND}"))
            version = page.metadata.resource_version
            await self._count(item.metadata.name for item in page.items)

    async def _follow(self, version: str) -> None:
        path = f"/api/v1/pods?watch=true&resourceVersion={version}&timeoutSeconds=3600&{_BOUND}"
        async with self.calls.session.get(URL(path, encoded=True), timeout=None) as stream:
            async for line in stream.content:
                await self._count([_EVENT.decode(line).object.metadata.name])

    async def _count(self, names: Iterable[str]) -> None:
        found = {name for name in names if name.startswith(self.prefix)}
        if found - self.bound_at.keys():
            now = perf_counter()
            async with self._changed:
                for name in found:
                    self.bound_at.setdefault(name, now)
                self._changed.notify_all()
