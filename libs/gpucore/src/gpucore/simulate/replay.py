"""Replay of a trace: pods arrive and never end; the result is the unallocated capacity.

The method of the FGD paper: arrivals are drawn from a trace until they request a given multiple of
all GPUs; a pod that fits on no node is dropped. The same policies decide as in a cluster, and CPU
and memory of the nodes count too. No clock and no randomness here: arrivals and picks are
arguments.
"""

from collections.abc import Callable, Iterable, Sequence
from operator import itemgetter
from typing import Final

import msgspec

from gpucore.accounting.device_info import MILLI
from gpucore.accounting.node_info import NodeInfo
from gpucore.model import FitError, Placement, PodRequest
from gpucore.scheduling.policy import POLICIES, ChooseGroup, Policy, fragmentation_policy, place
from gpucore.simulate.claimfit import CLAIM_ORDERS, ClaimFit
from gpucore.simulate.hosts import Host, HostWorkload
from gpucore.simulate.traces import TraceNode, TracePod
from gpucore.units import GpuIndex

RANDOM: Final = "random"
REPLAY_POLICIES: Final = (*POLICIES, RANDOM, *CLAIM_ORDERS)
Pick = Callable[[int], int]
"""A number from 0 up to the argument, which it excludes."""
Progress = Callable[[float], None]
"""Called with the number of exclusive GPUs that the arrivals have requested."""


class Replayed(msgspec.Struct, frozen=True):
    """The result of a replay, in exclusive GPUs except for the counts of pods.

    Attributes:
        gpus: GPUs of all nodes.
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
    workload: HostWorkload,
    pick: Pick,
    target: float = 1.3,
    progress: Progress | None = None,
) -> Replayed:
    """Place arrivals until they request ``target`` times all GPUs, or end.

    Args:
        nodes: the empty cluster.
        arrivals: pods in the order they come; may be endless, if pods with GPUs are among them.
        policy: one of ``REPLAY_POLICIES``.
        workload: the usual requests, for the fragmentation policy.
        pick: random choice, for the random policy.
        target: arrivals over capacity.
        progress: called after every arrival.
    """
    stage = _Stage(nodes, policy, workload, pick)
    gpus = sum(node.gpus for node in nodes)
    wanted = given = pods = dropped = 0
    for pod in arrivals:
        if wanted >= target * gpus * MILLI:
            break
        placed = stage.place(pod)
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


class _Offer(msgspec.Struct):
    """What a host would give a kind of pod and how good that is; no placement is a refusal."""

    version: int
    placement: Placement | None = None
    rating: tuple[float, ...] = ()


class _Stage:
    """The hosts of a replay, with what each offers each kind of pod."""

    def __init__(
        self, nodes: Sequence[TraceNode], policy: str, workload: HostWorkload, pick: Pick
    ) -> None:
        self._hosts = [Host(node) for node in nodes]
        self._policy = policy
        self._workload = workload
        self._pick = pick
        self._offers: dict[TracePod, list[_Offer]] = {}
        claims = CLAIM_ORDERS.get(policy)
        self._claims = None if claims is None else ClaimFit(nodes, claims)

    def place(self, pod: TracePod) -> bool:
        """Give ``pod`` to the best host; False when none can take it."""
        kind = msgspec.structs.replace(pod, name="")
        offers = self._offers.setdefault(kind, [_Offer(-1)] * len(self._hosts))
        for position, host in enumerate(self._hosts):
            if offers[position].version != host.version:
                offers[position] = self._offer(host, kind)
        chosen = self._choose(offers)
        if chosen is None:
            return False
        host, placement = chosen
        host.take(pod, placement)
        return True

    def _choose(self, offers: Sequence[_Offer]) -> tuple[Host, Placement] | None:
        """The best offer, the first among equals; any where chance decides."""
        fitting = [
            (offer.rating, host, offer.placement)
            for host, offer in zip(self._hosts, offers, strict=True)
            if offer.placement is not None
        ]
        if not fitting:
            return None
        if self._policy == RANDOM:
            return fitting[self._pick(len(fitting))][1:]
        return max(fitting, key=itemgetter(0))[1:]

    def _offer(self, host: Host, pod: TracePod) -> _Offer:
        if not host.runs(pod):
            return _Offer(host.version)
        pod_request, policy = pod.pod_request(), self._rule(host, pod)
        placement = self._placement(host, pod_request, policy)
        if placement is None:
            return _Offer(host.version)
        return _Offer(host.version, placement, policy.rate(host.node_info, pod_request, placement))

    def _rule(self, host: Host, pod: TracePod) -> Policy:
        if self._claims is not None:
            return self._claims.rule(host, pod, self._policy_of(self._claims.policy, host, pod))
        return self._policy_of(self._policy, host, pod)

    def _policy_of(self, name: str, host: Host, pod: TracePod) -> Policy:
        if name != "fragmentation":
            return POLICIES.get(name, POLICIES["binpack"])
        before = self._workload.on(host.model, host.cpu_milli, host.memory_mib)
        cpu, memory = host.cpu_milli - pod.cpu_milli, host.memory_mib - pod.memory_mib
        return fragmentation_policy(before, self._workload.on(host.model, cpu, memory))

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
