"""May decisions be taken: only on what was listed completely and heard of lately.

Ready means that every followed collection is synced and that the API server said something about
each within ``stale_after`` seconds. Nothing older than that is ever decided on. Alive means no more
than that this process answers: restarting it does not bring an API server back.

A bind waits for more: after a lost connection the API server may have been restored from a backup,
and hold pods that no watch told of. No card is given away until it has confirmed the version.
"""

import asyncio
from collections.abc import Sequence
from typing import Final, Protocol

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

    @property
    def confirmed(self) -> bool:
        """No failure since the API server last confirmed the resource version."""
        ...

    async def wait_for_confirmation(self) -> None:
        """Wait until :attr:`confirmed` is true."""
        ...


CONFIRM_SECONDS: Final = 1.0
"""How long a bind waits for a confirmation: longer than the first pause of an informer."""


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

    async def unconfirmed(self) -> str:
        """Why no card may be given away now; empty when one may. Waits a moment for that."""
        if obstacle := self.obstacle():
            return obstacle
        for one in self._followed:
            if not one.confirmed:
                try:
                    await asyncio.wait_for(one.wait_for_confirmation(), CONFIRM_SECONDS)
                except TimeoutError:
                    return f"the API server has not confirmed {one.name} since the watch failed"
        return self.obstacle()

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
