"""Which of several refused gangs is planned next: each namespace in turn, and each of its gangs.

A plan takes long on a large cluster, and a tenant may create any number of gangs that never fit. So
turns go by namespace first. Gangs and namespaces that are new come last: no gang gets an earlier
turn by being created again.
"""

from collections.abc import Collection, Iterable

from gpucore.gang.pod_groups import Key


class GangTurns:
    """The gangs that wait, in the order of their turns."""

    def __init__(self) -> None:
        self._queue: dict[str, dict[Key, None]] = {}

    def keep(self, gangs: Iterable[Key]) -> None:
        """These gangs wait and no others; the new ones among them come last, in this order."""
        waiting = dict.fromkeys(gangs)
        for namespace, turns in list(self._queue.items()):
            self._queue[namespace] = {key: None for key in turns if key in waiting}
            if not self._queue[namespace]:
                del self._queue[namespace]
        for key in waiting:
            self._queue.setdefault(key[0], {}).setdefault(key)

    def take(self, gangs: Collection[Key]) -> Key | None:
        """The one of ``gangs`` whose turn it is; its next turn comes after all others."""
        for namespace, turns in self._queue.items():
            found = next((key for key in turns if key in gangs), None)
            if found is not None:
                turns[found] = turns.pop(found)
                self._queue[namespace] = self._queue.pop(namespace)
                return found
        return None
