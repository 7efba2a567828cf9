"""A run on a cluster with what an operator set."""

from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING

import msgspec

from gpucore.sizing.idle_eviction import IdleRules, MeasuredPod
from gpucore.wire.names import Names
from gpuinspect.cluster.collect import ClusterSource
from gpuinspect.eviction.lease import RunLease
from gpuinspect.idle.outcomes import IdleRun, MeasuredPods, RunLimits
from gpuinspect.idle.reading import IdleSelection, measured_again, measured_pods
from gpuinspect.idle.run import carry_out

if TYPE_CHECKING:  # the import takes a while
    from gpukube.blocking import BlockingClient


class IdleEviction(msgspec.Struct, frozen=True):
    """What an operator set.

    Attributes:
        lease: ``NAMESPACE/NAME``.
        apply: give notice and evict; without it nothing is changed.
    """

    rules: IdleRules
    limits: RunLimits
    selection: IdleSelection
    lease: str
    apply: bool = False


class LiveIdleCalls:
    """A cluster that is read and changed through a client."""

    def __init__(self, kube: "BlockingClient", names: Names, selection: IdleSelection) -> None:
        self._kube, self._names, self._selection = kube, names, selection

    def read(self) -> MeasuredPods:
        """The pods as they are now."""
        return measured_pods(self._kube, self._names, self._selection)

    def again(self, pod: MeasuredPod, found: MeasuredPods) -> MeasuredPod:
        """What the plugin of its node reports now."""
        return measured_again(self._kube, pod, found)

    def notice(self, pod: MeasuredPod, noticed_at: float, evict_after: float) -> None:
        """Record the event and write the annotation."""
        from gpuinspect.idle.changes import give_notice  # noqa: PLC0415 - imports the async client

        give_notice(self._kube, pod, noticed_at, evict_after)

    def evict(self, pod: MeasuredPod) -> None:
        """Evict the pod and record events."""
        from gpuinspect.idle.changes import evict_idle  # noqa: PLC0415 - as above

        evict_idle(self._kube, pod)


def run_eviction(
    source: ClusterSource,
    names: Names,
    wanted: IdleEviction,
    clock: Callable[[], datetime],
) -> IdleRun:
    """What was done, or would be.

    Raises:
        InspectError: the name of the Lease is wrong, or what holds GPUs is not all known.
        KubeError: the cluster cannot be read.
    """
    with source.connect() as kube:
        calls = LiveIdleCalls(kube, names, wanted.selection)
        lease = RunLease(kube, wanted.lease, clock) if wanted.apply else None
        return carry_out(calls, wanted.rules, wanted.limits, clock, lease)
