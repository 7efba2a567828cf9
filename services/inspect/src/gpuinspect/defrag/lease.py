"""The Lease of defragmentation: its annotation remembers the evictions of the last hour.

Each eviction is written before it is requested, so a run that dies has counted its eviction.
"""

import msgspec

from gpucore.defrag.budgets import PastEviction, recent
from gpucore.wire.names import DEFRAG_HISTORY
from gpuinspect.eviction.lease import RunLease
from gpukube.errors import InvalidReplyError


class DefragLease(RunLease):
    """The Lease and its history."""

    @property
    def history(self) -> tuple[PastEviction, ...]:
        """The evictions of the last hour, of all runs."""
        try:
            text = self.annotations.get(DEFRAG_HISTORY, "[]")
            found = msgspec.json.decode(text, type=tuple[PastEviction, ...])
        except msgspec.MsgspecError as error:
            where = f"annotation {DEFRAG_HISTORY} of Lease {self.name}"
            raise InvalidReplyError(f"{where} cannot be parsed: {error}") from error
        return recent(found, int(self._clock().timestamp()))

    def record(self, eviction: PastEviction) -> None:
        """Write an eviction that is about to be requested, and renew the Lease.

        Raises:
            LeaseError: another run took the Lease.
            KubeError: it cannot be written.
        """
        history = msgspec.json.encode((*self.history, eviction)).decode()
        self.renew({DEFRAG_HISTORY: history})
