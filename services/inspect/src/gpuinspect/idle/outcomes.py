"""What a run did with each idle pod, or would do."""

from enum import StrEnum

import msgspec

from gpucore.sizing.idle_eviction import MeasuredPod
from gpukube.plugin_pods import PluginAddress


class MeasuredPods(msgspec.Struct, frozen=True):
    """One read of a cluster.

    Attributes:
        pods: those with GPUs, of the chosen namespaces and nodes.
        plugins: the device plugins that were asked, by node.
        note: why memory in use is not all known; empty where it is.
    """

    pods: tuple[MeasuredPod, ...]
    plugins: dict[str, PluginAddress]
    note: str


class IdleOutcome(StrEnum):
    """What became of an idle pod."""

    NOTICED = "noticed"
    WAITS = "waits"
    EVICTED = "evicted"
    SPARED = "spared"
    POSTPONED = "postponed"
    REFUSED = "refused"


class IdlePodOutcome(msgspec.Struct, frozen=True):
    """An idle pod and what became of it, or would.

    Attributes:
        evict_after: Unix seconds before which it is not evicted; 0 where it is spared.
        reason: why it is spared, postponed or refused.
    """

    pod: MeasuredPod
    outcome: IdleOutcome
    evict_after: float = 0.0
    reason: str = ""


class IdleRun(msgspec.Struct, frozen=True):
    """What a run did.

    Attributes:
        note: why memory in use, or what the cluster permits, is not all known; empty where it is.
        stopped: why it ended early; empty where it did not.
        applied: it was allowed to give notice and to evict.
    """

    outcomes: tuple[IdlePodOutcome, ...] = ()
    note: str = ""
    stopped: str = ""
    applied: bool = False
