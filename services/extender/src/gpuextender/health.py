"""May decisions be taken: only on what was listed completely and heard of lately.

Ready means that every followed collection is synced and that the API server said something about
each within ``stale_after`` seconds. Nothing older than that is ever decided on. Alive means no more
than that this process answers: restarting it does not bring an API server back.
"""

from collections.abc import Sequence
from typing import Protocol

from gpuextender import metrics


class Followed(Protocol):
    """A collection that is being followed."""

    @property
    def name(self) -> str:
        """Of the collection."""
        ...

    @property
    def age(self) -> float:
        """Seconds since it was last heard of; infinite before the first list."""
        ...


class Health:
    """Readiness of this process.

    Attributes:
        draining: it was asked to stop.
        loaded: what was listed is in the books that verbs read.
    """

    def __init__(self, followed: Sequence[Followed], *, stale_after: float) -> None:
        self._followed = followed
        self._stale_after = stale_after
        self.draining = False
        self.loaded = False

    def obstacle(self) -> str:
        """Why no decision may be taken now; empty when one may.

        A process that was asked to stop still decides: requests come until everyone knows.
        """
        for one in self._followed:
            age = one.age
            if age > self._stale_after:
                return _sentence(one.name, age)
        return "" if self.loaded else "what was listed is not entered yet"

    def unready(self) -> str:
        """Why no new requests should come here; empty when they should."""
        return "shutting down" if self.draining else self.obstacle()

    def measure(self) -> None:
        """Bring the gauges up to date."""
        for one in self._followed:
            metrics.REFLECTOR_AGE.labels(one.name).set(one.age)
        metrics.READY.set(not self.unready())


def _sentence(name: str, age: float) -> str:
    if age == float("inf"):
        return f"{name} are not listed yet"
    return f"the API server has said nothing about {name} for {age:.0f} s"
