"""How the scheduler of a cluster is configured: its two profiles, and the extender's policies.

Both profiles of a kube-scheduler share one queue, one cache and the extender. The exact profile
compares all nodes for a pod; the burst profile compares the first :data:`LEAST_EVALUATED` that fit,
which is several times faster in a cluster of thousands of nodes. The webhook writes the name of the
burst profile into new pods while more than a number of pods wait in the queue, and stops at a
quarter of that number, so that a queue of about that length does not alternate.
"""

from collections import deque
from collections.abc import Iterable, Mapping
from itertools import islice
from types import MappingProxyType
from typing import Final

import msgspec

from gpucore.accounting.node_info import NodeInfo
from gpucore.scheduling.grouping import BY_LINKS, Grouping
from gpucore.topology.static import StaticSets

LEAST_EVALUATED: Final = 100
"""Nodes that fit by kube-scheduler's own rules and that it evaluates in any case."""
BURST_PERCENTAGE: Final = 1
"""percentageOfNodesToScore of the burst profile: the least that kube-scheduler accepts."""
UNSET_NAMES: Final = frozenset({"", "default-scheduler"})
"""``spec.schedulerName`` of a pod that names no scheduler: the API server fills in the default."""
END_PART: Final = 4
LAG_SECONDS: Final = 0.5
"""Within this time the watch shows a pod that was reviewed, also where the processors are busy."""
MOST_REVIEWED: Final = 10_000
"""Pods that are counted of those that were reviewed and not shown."""
BURST_SUFFIX: Final = "-burst"
"""The chart appends it to the scheduler's name."""
DEFAULT_POLICY: Final = "binpack"
NO_SETS: Final[Mapping[str, StaticSets]] = MappingProxyType({})


class SchedulerProfiles(msgspec.Struct, frozen=True):
    """The names that select a profile in ``spec.schedulerName``.

    Attributes:
        exact: compares all nodes; empty where the webhook names no scheduler.
        burst: compares few nodes; empty where the scheduler has one profile.
        pods: number of pods in the queue above which new pods get the burst profile; 0 never.
    """

    exact: str = ""
    burst: str = ""
    pods: int = 0

    @property
    def names(self) -> frozenset[str]:
        """The names that select one of the profiles."""
        return frozenset(filter(None, (self.exact, self.burst)))

    @property
    def switches(self) -> bool:
        """New pods get the burst profile at times."""
        return bool(self.exact and self.burst and self.pods)

    @property
    def end(self) -> int:
        """Number of pods in the queue at which new pods get the exact profile again."""
        return self.pods // END_PART


def burst_pays(node_infos: Iterable[NodeInfo]) -> bool:
    """More nodes have GPUs than the burst profile compares: else both profiles compare all."""
    present = (1 for each in node_infos if each.present and each.devices)
    return sum(islice(present, LEAST_EVALUATED + 1)) > LEAST_EVALUATED


def without_burst(names: Iterable[str]) -> list[str]:
    """The names that people are advised to use, in order: the webhook sets the burst profile."""
    known = set(names)
    return sorted(known - {name + BURST_SUFFIX for name in known})


def same_scheduler(scheduler: str, named: str) -> bool:
    """A pod that names ``named`` is placed by ``scheduler``, in one of its profiles."""
    return named in {scheduler, scheduler + BURST_SUFFIX}


def profiles_for(profiles: SchedulerProfiles, node_infos: Iterable[NodeInfo]) -> SchedulerProfiles:
    """The profiles in a cluster of these nodes: where a burst does not pay, none begins."""
    if not profiles.switches or burst_pays(node_infos):
        return profiles
    return msgspec.structs.replace(profiles, pods=0)


class BurstSwitch:
    """Whether new pods get the burst profile, with hysteresis."""

    def __init__(self, profiles: SchedulerProfiles) -> None:
        self._profiles = profiles
        self._on = False

    def on(self, queued: int) -> bool:
        """Whether a pod that is created now gets the burst profile.

        Args:
            queued: number of pods that wait for the scheduler.
        """
        if not self._profiles.switches:
            return False
        self._on = queued > (self._profiles.end if self._on else self._profiles.pods)
        return self._on


class ReviewedPods:
    """Pods that were reviewed a moment ago and that the watch has not shown yet.

    In a burst they are as many as those in the queue. A pod that another admission refuses is never
    shown, and a trial is never stored, so each counts for :data:`LAG_SECONDS` at most.
    """

    def __init__(self) -> None:
        self._times = deque[float](maxlen=MOST_REVIEWED)
        self._shown = 0

    def add(self, now: float) -> None:
        """A pod was reviewed, at this time in seconds of a steady clock."""
        self._times.append(now)

    def count(self, shown: int, now: float) -> int:
        """Number of pods.

        Args:
            shown: number of pods that the watch has shown so far.
        """
        fresh, self._shown = shown - self._shown, shown
        while self._times and (fresh > 0 or self._times[0] < now - LAG_SECONDS):
            self._times.popleft()
            fresh -= 1
        return len(self._times)


class ExpectedProfile(msgspec.Struct, frozen=True):
    """The profile that a pod gets if it is created now.

    Attributes:
        scheduler: its name.
        burst: it is the burst profile.
        doubtful: it may be the other one.
        queued: number of pods before it.
    """

    scheduler: str
    burst: bool = False
    doubtful: bool = False
    queued: int = 0


def expected_profile(
    profiles: SchedulerProfiles, named: str, *, gang: bool, queued: int, before: int = 0
) -> ExpectedProfile:
    """The profile of a pod that does not exist yet.

    Args:
        named: the scheduler that it names; a pod that names one keeps it.
        gang: it belongs to a gang; the pods of a gang keep one profile, the exact one.
        queued: number of pods that wait for the scheduler now.
        before: number of pods that are created just before it.
    """
    if not profiles.exact or named not in UNSET_NAMES:
        return ExpectedProfile(named, burst=bool(profiles.burst) and named == profiles.burst)
    if not profiles.switches or gang:
        return ExpectedProfile(profiles.exact)
    total = queued + before
    if total > profiles.pods:
        return ExpectedProfile(profiles.burst, burst=True, queued=total)
    return ExpectedProfile(profiles.exact, doubtful=queued > profiles.end, queued=total)


class ClusterPolicy(msgspec.Struct, frozen=True):
    """What the extender does where neither pod nor node names a policy.

    Attributes:
        name: of the policy that chooses a GPU for a share.
        topology: of the policy that chooses several GPUs by their links.
        source: where this was read, in words.
        static: configured sets of the static policy by node type, over the shipped ones.
        candidates: maximum number of nodes among which kube-scheduler chooses; 0 all that fit.
        percentage: of the nodes that kube-scheduler evaluates; 0 its default.
        profiles: of the scheduler that calls the extender.
        wait: as in :class:`gpucore.scheduling.grouping.Grouping`.
    """

    name: str = DEFAULT_POLICY
    topology: str = BY_LINKS.policy
    source: str = "assumed: no extender was found"
    static: Mapping[str, StaticSets] = NO_SETS
    candidates: int = 1
    percentage: int = 0
    profiles: SchedulerProfiles = SchedulerProfiles()
    wait: bool = True

    @property
    def grouping(self) -> Grouping:
        """The choice of several GPUs."""
        return Grouping(self.topology, self.static, self.wait)

    def __str__(self) -> str:
        """Both names and where they were read."""
        return f"{self.name}, topology {self.topology} ({self.source})"
