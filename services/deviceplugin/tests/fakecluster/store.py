"""The objects of the fake cluster and the history of their changes."""

import asyncio
import copy
import time
from bisect import bisect_right
from collections.abc import Callable
from typing import Any, NamedTuple

Object = dict[str, Any]
Selector = Callable[[Object], bool]


class Change(NamedTuple):
    """One step of the history; ``before`` is None for a new object, ``after`` for a deleted one."""

    version: int
    made: float
    before: Object | None
    after: Object | None


class Store:
    """One kind of objects, by (namespace, name)."""

    def __init__(self) -> None:
        self.objects: dict[tuple[str, str], Object] = {}
        self.version = 1
        self.oldest = 0
        self.history: list[Change] = []
        self._changed = asyncio.Event()

    def put(self, item: Object) -> Object:
        """Create or replace an object; returns what is stored."""
        meta = item["metadata"]
        key = (meta.get("namespace", ""), meta["name"])
        before = self.objects.get(key)
        self.version += 1
        stored = copy.deepcopy(item)
        stored["metadata"]["resourceVersion"] = str(self.version)
        self.objects[key] = stored
        self._note(before, stored)
        return stored

    def delete(self, namespace: str, name: str) -> None:
        """Remove an object."""
        before = self.objects.pop((namespace, name))
        self.version += 1
        self._note(before, None)

    def compact(self) -> None:
        """Forget the history: watches that are older must list again."""
        self.oldest = self.version
        self.history.clear()

    def _note(self, before: Object | None, after: Object | None) -> None:
        self.history.append(Change(self.version, time.monotonic(), before, after))
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    async def wait_beyond(self, version: int) -> None:
        """Until the store is newer than ``version``."""
        while self.version <= version:
            await self._changed.wait()

    def events_since(self, version: int, selected: Selector) -> list[tuple[float, str, Object]]:
        """When and what a watch with a selector sees: an object that enters it is ADDED."""
        seen = []
        start = bisect_right(self.history, version, key=lambda change: change.version)
        for change in self.history[start:]:
            was = change.before is not None and selected(change.before)
            now = change.after is not None and selected(change.after)
            if now and change.after is not None:
                seen.append((change.made, "MODIFIED" if was else "ADDED", change.after))
            elif was and change.before is not None:
                seen.append((change.made, "DELETED", change.before))
        return seen


def merged(target: Any, patch: Any) -> Any:
    """JSON merge patch."""
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merged(result.get(key), value)
    return result
