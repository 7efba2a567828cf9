"""The policies that the extender of a cluster is configured with."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

import msgspec

from gpucore.scheduling.grouping import BY_LINKS, Grouping
from gpucore.scheduling.profiles import SchedulerProfiles
from gpucore.topology.static import StaticSets

DEFAULT_POLICY: Final = "binpack"
NO_SETS: Final[Mapping[str, StaticSets]] = MappingProxyType({})


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
    """

    name: str = DEFAULT_POLICY
    topology: str = BY_LINKS.policy
    source: str = "assumed: no extender was found"
    static: Mapping[str, StaticSets] = NO_SETS
    candidates: int = 1
    percentage: int = 0
    profiles: SchedulerProfiles = SchedulerProfiles()

    @property
    def grouping(self) -> Grouping:
        """The choice of several GPUs."""
        return Grouping(self.topology, self.static)

    def __str__(self) -> str:
        """Both names and where they were read."""
        return f"{self.name}, topology {self.topology} ({self.source})"
