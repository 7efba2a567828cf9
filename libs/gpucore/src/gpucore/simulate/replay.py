"""Replay of a trace: pods arrive and never end; the result is the unallocated capacity.

The method of the FGD paper: arrivals are drawn from a trace until they request a given multiple of
all GPUs; a pod that fits on no node is dropped. The same policies decide as in a cluster, and CPU
and memory of the nodes count too. No clock and no randomness here: arrivals and picks are
arguments.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Final

import msgspec

from gpucore.accounting.node_info import NodeInfo
from gpucore.model import FitError, Placement, PodRequest
from gpucore.scheduling.fit import has_room
from gpucore.scheduling.node_ranking import NodeRanking
from gpucore.scheduling.policy import POLICIES, ChooseGroup, Policy, place
from gpucore.simulate.claimfit import CLAIM_ORDERS, ClaimFit
from gpucore.simulate.hosts import Host, mix_of
from gpucore.simulate.published import PublishedMix, published_policy
from gpucore.simulate.traces import Pick, TraceNode, TracePod
from gpucore.units import MILLI, GpuIndex, NodeName, PodUid

RANDOM: Final = "random"
PUBLISHED: Final = "published"
"""Fragmentation gradient descent as it was published, to compare with."""
REPLAY_POLICIES: Final = (*POLICIES, RANDOM, PUBLISHED, *CLAIM_ORDERS)
KINDS: Final = 1 << 16
"""Kinds of pods whose ratings of nodes are kept."""
_BINPACK: Final = POLICIES["binpack"]
Progress = Callable[[float], None]
"""Called with the number of exclusive GPUs that the arrivals have requested."""


class Replayed(msgspec.Struct, frozen=True):
    """The result of a replay, in exclusive GPUs except for the counts of pods.

    Attributes:
        requested: by all arrivals.
        placed: of that, given.
        failed: of that, refused.
        unallocated_gpus: left over at the end.
        requested_pods, failed_pods: the same arrivals as pods, those without GPUs included.
    """

    gpus: int
    requested: float
    placed: float
    failed: float
    unallocated_gpus: float
    requested_pods: int
    failed_pods: int


def replay(
    nodes: Sequence[TraceNode],
    arrivals: Iterable[TracePod],
    policy: str,
    *,
    workload: Sequence[TracePod],
    pick: Pick,
    target: float = 1.3,
    progress: Progress | None = None,
) -> Replayed:
    """Place arrivals until they request ``target`` times all GPUs, or end.

    Args:
        nodes: the empty cluster.
        arrivals: pods in the order they come; may be endless, if pods with GPUs are among them.
        policy: one of ``REPLAY_POLICIES``.
        workload: the pods that usually come, for the fragmentation policies.
        target: arrivals over capacity.
        progress: called after every arrival.
    """
    stage = ReplayCluster(nodes, policy, workload, pick)
    gpus = sum(node.gpus for node in nodes)
    wanted = given = pods = dropped = 0
    for pod in arrivals:
        if wanted >= target * gpus * MILLI:
            break
        placed = stage.place(pod) is not None
        pods, dropped = pods + 1, dropped + (not placed)
        wanted, given = wanted + pod.milli, given + pod.milli * placed
        if progress is not None:
            progress(wanted / MILLI)
    return Replayed(
        gpus=gpus,
        requested=wanted / MILLI,
        placed=given / MILLI,
        failed=(wanted - given) / MILLI,
        unallocated_gpus=(gpus * MILLI - given) / MILLI,
        requested_pods=pods,
        failed_pods=dropped,
    )


class RunningPod(msgspec.Struct, frozen=True):
    """A pod on a host.

    Attributes:
        uid: under which it holds its GPUs.
    """

    pod: TracePod
    host: Host
    uid: PodUid


class ReplayCluster:
    """The hosts of a replay, with how good each is for each kind of pod.

    Attributes:
        hosts: by the name of their node.
    """

    def __init__(
        self, nodes: Sequence[TraceNode], policy: str, workload: Sequence[TracePod], pick: Pick
    ) -> None:
        mix = mix_of(workload)
        self.hosts = {NodeName(node.name): Host(node, mix) for node in nodes}
        self._policy = policy
        self._pick = pick
        self._ranking = NodeRanking(self._rate, limit=KINDS)
        self._requests: dict[TracePod, PodRequest] = {}
        claims = CLAIM_ORDERS.get(policy)
        self._claims = None if claims is None else ClaimFit(nodes, claims)
        self._published = published_policy(PublishedMix(workload)) if policy == PUBLISHED else None

    def place(self, pod: TracePod) -> RunningPod | None:
        """Give ``pod`` to the best host; ``None`` when none can take it."""
        kind = msgspec.structs.replace(pod, name="")
        for _ in self._ranking.refresh(kind, lambda: self.hosts):
            pass
        chosen = self._choose(kind)
        placement = None if chosen is None else self._placed(chosen, kind)
        if chosen is None or placement is None:
            return None
        return self.put(pod, chosen, placement)

    def put(self, pod: TracePod, host: Host, placement: Placement) -> RunningPod:
        """Give ``pod`` this placement, which fits."""
        uid = host.take(pod, placement)
        self._ranking.node_changed(host.node_info.name)
        return RunningPod(pod, host, uid)

    def end(self, running: RunningPod) -> None:
        """The pod ended."""
        running.host.release(running.pod, running.uid)
        self._ranking.node_changed(running.host.node_info.name)

    def _choose(self, kind: TracePod) -> Host | None:
        """The best host, the first among equals; any where chance decides."""
        if self._policy == RANDOM:
            fitting = sorted(self._ranking.admitting(kind))
            return self.hosts[fitting[self._pick(len(fitting))]] if fitting else None
        best = self._ranking.best(kind)
        return None if best is None else self.hosts[best]

    def _rate(self, name: NodeName, kind: TracePod) -> tuple[float, ...] | None:
        host = self.hosts[name]
        request = self._request(kind)
        if not host.runs(kind) or (kind.gpus and not has_room(host.node_info, request)):
            return None
        placement = self._placed(host, kind)
        if placement is None:
            return None
        return self._rule(host, kind).rate(host.node_info, request, placement)

    def _placed(self, host: Host, kind: TracePod) -> Placement | None:
        return self._placement(host, self._request(kind), self._rule(host, kind))

    def _request(self, kind: TracePod) -> PodRequest:
        known = self._requests.get(kind)
        if known is None:
            known = self._requests[kind] = kind.pod_request()
        return known

    def _rule(self, host: Host, pod: TracePod) -> Policy:
        if self._published is not None:
            return self._published
        if self._claims is not None:
            return self._claims.rule(host, pod, POLICIES.get(self._claims.policy, _BINPACK))
        return POLICIES.get(self._policy, _BINPACK)

    def _placement(self, host: Host, pod_request: PodRequest, policy: Policy) -> Placement | None:
        node_info = host.node_info
        if not (pod_request.mem or pod_request.gpus):
            return Placement(node_info.name)
        placement = place(
            node_info, pod_request, policy, choose_group=self._chooser(host, pod_request)
        )
        return None if isinstance(placement, FitError) else placement

    def _chooser(self, host: Host, pod_request: PodRequest) -> ChooseGroup | None:
        if self._policy == RANDOM:
            return self._by_chance
        claims = self._claims
        if claims is None or not (pod_request.gpus or pod_request.gpu_count > 1):
            return None
        return lambda _info, free, count: claims.group(host, free, count)

    def _by_chance(
        self, node_info: NodeInfo, free: Sequence[GpuIndex], count: int
    ) -> tuple[GpuIndex, ...]:
        del node_info  # chance looks at nothing
        left = list(free)
        return tuple(left.pop(self._pick(len(left))) for _ in range(count))
