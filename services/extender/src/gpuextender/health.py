"""Whether the extender may decide: only with complete lists and recent watches.

Ready means that every watched collection is synced and that the API server sent something for each
within ``stale_after`` seconds. The extender never decides on older data. Alive means only that this
process responds: restarting it does not bring an API server back.

A bind waits for more: after a lost connection the API server may have been restored from a backup,
and hold pods that no watch reported. No GPU is allocated until it has confirmed the version.
A process that stood still, as in a paused virtual machine, has not read what others did meanwhile:
it lists again before it allocates.
"""

import asyncio
from collections.abc import Callable, Sequence
from time import monotonic
from typing import Any, Final

import structlog

from gpuextender import metrics
from gpukube.watch.informer import Informer

CONFIRM_SECONDS: Final = 1.0
"""How long a bind waits for a confirmation: longer than the first pause of an informer."""
STILL_SECONDS: Final = 10.0
"""Another scheduler gets the Lease after 15 s by default, and binds pods then."""
TURN_SECONDS: Final = 1.0

log = structlog.get_logger(__name__)


class Readiness:
    """Readiness of this process.

    Attributes:
        draining: the process received SIGTERM.
        loaded: the ledger contains the first lists.
        unserved: returns why a port is not served; empty where all are.
    """

    def __init__(self, followed: Sequence[Informer[Any]], *, stale_after: float) -> None:
        self._followed = followed
        self._stale_after = stale_after
        self.draining = False
        self.loaded = False
        self.unserved: Callable[[], str] = str
        self._turned = float("inf")

    def obstacle(self) -> str:
        """Why the extender may not decide now; empty when it may.

        A stopping process still decides: clients send requests until they see it as not ready.
        """
        for one in self._followed:
            age = one.age
            if age > self._stale_after:
                return _sentence(one.name, age)
        return "" if self.loaded else "initial list not applied yet"

    async def unconfirmed(self) -> str:
        """Why no GPU may be given away now; empty when one may. Waits a moment for that."""
        if obstacle := self.obstacle() or self._stood_still():
            return obstacle
        name = ""
        try:
            async with asyncio.timeout(CONFIRM_SECONDS):
                while one := self._first_unconfirmed():
                    name = one.name
                    await one.wait_for_confirmation()
        except TimeoutError:
            return f"the API server has not confirmed {name} since the watch failed"
        return self.obstacle()

    def _first_unconfirmed(self) -> Informer[Any] | None:
        return next((one for one in self._followed if not one.confirmed), None)

    async def list_after_standstill(self) -> None:
        """List again where this process did nothing for :data:`STILL_SECONDS`; works for ever."""
        while True:
            self._turned = monotonic()
            await asyncio.sleep(TURN_SECONDS)
            if reason := self._stood_still():
                log.warning("listing again", reason=reason)
                for one in self._followed:
                    one.list_again()

    def _stood_still(self) -> str:
        """Why what was read is old, after a standstill of this process; empty without one."""
        still = monotonic() - self._turned - TURN_SECONDS
        if still <= STILL_SECONDS:
            return ""
        return f"the extender stood still for {still:.0f} s and has to list nodes and pods again"

    def unready(self) -> str:
        """Why no new requests should come here; empty when they should."""
        return "shutting down" if self.draining else self.obstacle() or self.unserved()

    def measure(self) -> None:
        """Bring the gauges up to date."""
        for one in self._followed:
            metrics.REFLECTOR_AGE.labels(one.name).set(one.age)
        metrics.READY.set(not self.unready())


def _sentence(name: str, age: float) -> str:
    if age == float("inf"):
        return f"{name} are not listed yet"
    return f"the API server has sent nothing about {name} for {age:.0f} s"
