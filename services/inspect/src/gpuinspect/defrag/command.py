"""A run on a cluster, or its plan on a snapshot, with what an operator set."""

from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from typing import TYPE_CHECKING, Final

import msgspec

from gpucore.defrag.budgets import Budgets
from gpucore.defrag.planning import Eviction, EvictionPlan
from gpucore.defrag.pods import DefragPod, DefragState
from gpucore.wire.names import Names
from gpuinspect.cluster.collect import CLAIM_LISTS, ClusterSource, live
from gpuinspect.cluster.snapshots import Snapshot
from gpuinspect.defrag.lease import DefragLease
from gpuinspect.defrag.reading import READ, defrag_state
from gpuinspect.defrag.run import RunReport, carry_out, planned
from gpuinspect.errors import InspectError
from gpuinspect.terminal.ages import now
from gpukube.errors import ForbiddenError

if TYPE_CHECKING:  # the import takes a while and a snapshot needs no client
    from gpukube.blocking import BlockingClient


NEEDED: Final = frozenset(one.kind for one in CLAIM_LISTS)
"""Lists without which GPUs would seem free that claims hold."""


class EvictionSettings(msgspec.Struct, frozen=True):
    """What an operator set.

    Attributes:
        waited_seconds: seconds for which a pod must have waited.
        scheduler: the only scheduler whose pods count as waiting; empty for all.
        lease: ``NAMESPACE/NAME``.
        apply: evict.
    """

    budgets: Budgets = Budgets()
    waited_seconds: int = 120
    scheduler: str = ""
    lease: str = "kube-system/gpushare-defrag"
    apply: bool = False


class LiveCalls:
    """A cluster that is read and changed through a client.

    Attributes:
        state: as it was read last.
    """

    def __init__(self, kube: "BlockingClient", names: Names, wanted: EvictionSettings) -> None:
        self._kube, self._names, self._wanted = kube, names, wanted
        self.state: DefragState | None = None

    def read(self) -> DefragState:
        """The cluster as it is now."""
        found = live(self._kube, READ)
        for kind in NEEDED & found.missing.keys():
            raise InspectError(f"allocations are unknown: {found.missing[kind]}")
        self.state = _state(found, self._names, self._wanted, now())
        return self.state

    def evict(self, pod: DefragPod, *, dry_run: bool) -> None:
        """Request an eviction."""
        from gpuinspect.eviction.requests import evict  # noqa: PLC0415 - imports the async client

        evict(self._kube, pod, dry_run=dry_run)

    def announce(self, plan: EvictionPlan, eviction: Eviction) -> None:
        """Record events."""
        from gpuinspect.defrag.evictions import announce  # noqa: PLC0415 - as above

        announce(self._kube, plan, eviction)


def plan_or_evict(
    source: ClusterSource,
    names: Names,
    wanted: EvictionSettings,
    clock: Callable[[], datetime] = now,
) -> tuple[RunReport, DefragState]:
    """What was done, or would be, and the state that it was decided on.

    Raises:
        InspectError: a snapshot cannot be changed, or the name of the Lease is wrong.
        KubeError: the cluster cannot be read or written.
    """
    if source.snapshot is not None:
        if wanted.apply:
            raise InspectError("--apply needs a cluster: a snapshot cannot be changed")
        state = _state(source.read(*READ), names, wanted, clock())
        return planned(state, wanted.budgets, ()), state
    with source.connect() as kube:
        calls = LiveCalls(kube, names, wanted)
        lease = DefragLease(kube, wanted.lease, clock)
        if wanted.apply:
            report = carry_out(calls, lease, wanted.budgets, clock)
            return report, calls.state or calls.read()
        state = calls.read()
        with suppress(ForbiddenError):  # a person who only plans need not read it
            lease.look()
        return planned(state, wanted.budgets, lease.history), state


def _state(
    snapshot: Snapshot, names: Names, wanted: EvictionSettings, moment: datetime
) -> DefragState:
    return defrag_state(
        snapshot,
        names,
        now=moment,
        waited_seconds=wanted.waited_seconds,
        scheduler=wanted.scheduler,
    )
