"""The objects of the fake API server and the history of their changes."""

import asyncio
import copy
import time
from bisect import bisect_right
from typing import NamedTuple

from gpukube.testing.answers import Key, Object, Selector, key_of


class Change(NamedTuple):
    """One step of the history; ``before`` is None for a new object, ``after`` for a deleted one."""

    version: int
    made: float
    before: Object | None
    after: Object | None


class Revision:
    """The one counter of all changes, as in etcd."""

    def __init__(self) -> None:
        self.number = 100
        self._changed = asyncio.Event()

    def next(self) -> int:
        """Count one more change."""
        self.set(self.number + 1)
        return self.number

    def set(self, number: int) -> None:
        """Go to another revision, which may be an earlier one."""
        self.number = number
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    async def wait_beyond(self, version: int) -> None:
        """Wait for a revision after ``version``."""
        while self.number <= version:
            await self._changed.wait()


class Store:
    """One kind of objects, by namespace and name.

    Attributes:
        version: of the last change of this kind.
        oldest: watches from before this version have expired.
    """

    def __init__(self, revision: Revision) -> None:
        self.objects: dict[Key, Object] = {}
        self.version = revision.number
        self.oldest = 0
        self.history: list[Change] = []
        self._revision = revision
        self._changed = asyncio.Event()

    def put(self, item: Object) -> Object:
        """Create or replace an object; returns the stored one."""
        before = self.objects.get(key_of(item))
        stored = self.objects[key_of(item)] = self._stamped(item)
        self._record(before, stored)
        return stored

    def delete(self, namespace: str, name: str) -> None:
        """Remove an object; its last state gets the version of the deletion, as in Kubernetes."""
        self._record(self._stamped(self.objects.pop((namespace, name))), None)

    def compact(self) -> None:
        """Drop the history, so that older watches have to list again."""
        self.oldest = self._revision.number
        self.history.clear()

    def reset(self, objects: dict[Key, Object]) -> None:
        """Hold these objects and no history, as a restored etcd does."""
        self.objects = objects
        self.version = self._revision.number
        self.oldest = 0
        self.history.clear()

    def _stamped(self, item: Object) -> Object:
        self.version = self._revision.next()
        stored = copy.deepcopy(item)
        stored["metadata"]["resourceVersion"] = str(self.version)
        return stored

    def _record(self, before: Object | None, after: Object | None) -> None:
        self.history.append(Change(self.version, time.monotonic(), before, after))
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    async def wait_beyond(self, version: int) -> None:
        """Wait for a change of this kind after ``version``."""
        while self.version <= version:
            await self._changed.wait()

    def events_since(self, version: int, selected: Selector) -> list[tuple[float, str, Object]]:
        """Time, type and object of the events of a watch with a selector.

        An object that enters the selection is ADDED, one that leaves it is DELETED.
        """
        events = []
        start = bisect_right(self.history, version, key=lambda change: change.version)
        for change in self.history[start:]:
            was = change.before is not None and selected(change.before)
            now = change.after is not None and selected(change.after)
            if now and change.after is not None:
                events.append((change.made, "MODIFIED" if was else "ADDED", change.after))
            elif was and change.before is not None:
                events.append((change.made, "DELETED", change.before))
        return events
