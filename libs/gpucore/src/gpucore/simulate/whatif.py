"""What-if: places new pods one after the other on a copy of the state.

The same code decides as for real pods, and kube-scheduler's own rules as far as
:mod:`gpucore.kubescheduler.node_fit` evaluates them. A node with PreferNoSchedule taints that a pod
does not tolerate comes last; other soft constraints of the pod are not weighed.

The result of each node for a pod is cached until the node's state changes, so a hundred equal pods
cost one evaluation of every node and a hundred of the node that took the last one.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

import msgspec

from gpucore.accounting.claim_offers import (
    ClaimOffers,
    DeviceMap,
    Key,
    only_claims_exclusive,
)
from gpucore.accounting.node_info import NodeInfo
from gpucore.claims.node_fit import ClaimNode, ClaimRules, first_fit, refusal
from gpucore.kubescheduler.node_fit import avoided, constraint_refusals
from gpucore.model import Allocation, AllocationState, Code, FitError, Placement, PodRequest
from gpucore.model.constraints import UNCONSTRAINED, CandidateNode, PodConstraints, Resources
from gpucore.scheduling.candidates import Candidates
from gpucore.scheduling.cluster_policy import ClusterPolicy
from gpucore.scheduling.device_order import device_order
from gpucore.scheduling.fit import admit
from gpucore.scheduling.grouping import BY_LINKS, Grouping
from gpucore.scheduling.host_rooms import give_to_host, request_on_host, take_from_host
from gpucore.scheduling.nominated import host_refusal_beside, node_beside, refusal_beside
from gpucore.scheduling.pending_pods import Nominations
from gpucore.scheduling.policy import Policy, place, rate
from gpucore.steps import Steps, complete
from gpucore.units import NodeName, PodUid
from gpucore.wire.claim.claim_specs import ClaimSpec
from gpucore.wire.pod.spec import Pod

NO_NODES: Final[Mapping[NodeName, CandidateNode]] = MappingProxyType({})
NO_OFFERS: Final = ClaimOffers()


NO_REQUEST: Final = PodRequest(containers=())
"""The request of a pod whose GPUs are requested by claims."""


class WhatIfPod(msgspec.Struct, frozen=True):
    """A pod that might come.

    Attributes:
        constraints: what it requires besides GPUs; looked at on nodes that the simulation has as
            candidates.
        gang: it belongs to a gang, which is not looked at here.
        specs: what its claims request, those that it names first; empty without claims.
        named: namespace and name of the claims that it names, which all pods that name them share.
        scheduler: ``spec.schedulerName``; empty where it names none.
        priority: pods of a lower one that are nominated to a node keep nothing from it.
        node: its author or its controller assigned it to this one; empty where it may go to any.
    """

    name: str
    pod_request: PodRequest
    constraints: PodConstraints = UNCONSTRAINED
    gang: bool = False
    specs: tuple[ClaimSpec, ...] = ()
    named: tuple[Key, ...] = ()
    scheduler: str = ""
    priority: int = 0
    node: NodeName = NodeName("")


class WhatIfOutcome(msgspec.Struct, frozen=True):
    """The result of one wanted pod.

    Attributes:
        placement: node and GPUs; ``None`` where it fits on no node.
        refusals: why not, by node; empty where it is placed.
        fitting: number of nodes that it fits.
        node: as of the pod.
    """

    name: str
    placement: Placement | None = None
    refusals: Mapping[NodeName, FitError] = {}
    fitting: int = 0
    node: NodeName = NodeName("")


class Rated(msgspec.Struct, frozen=True):
    """Where a node would put a request, and how good that is; more is better."""

    placement: Placement
    rating: tuple[float, ...]


Verdicts = dict[NodeName, Rated | FitError]
"""The result of every node for one request, in the order of the nodes."""

_Kind = tuple[PodRequest, PodConstraints, tuple[ClaimSpec, ...], int]
"""Request, constraints, claims and priority of a pod."""


class SimulatedCluster:
    """Copies of node states on which pods are placed; results are cached.

    Args:
        node_infos: the current state, which is not changed.
        policy, grouping: as in :func:`gpucore.scheduling.policy.place`.
        nodes: the input of kube-scheduler's own rules; a node without one fits everything.
        kinds: maximum number of different pods whose results are cached; ``None`` caches all.
    """

    def __init__(
        self,
        node_infos: Mapping[NodeName, NodeInfo],
        policy: str | Policy = "",
        *,
        grouping: Grouping = BY_LINKS,
        nodes: Mapping[NodeName, CandidateNode] = NO_NODES,
        kinds: int | None = None,
        offers: ClaimOffers = NO_OFFERS,
        nominations: Nominations | None = None,
    ) -> None:
        self._node_infos = dict(node_infos)
        self._kinds = kinds
        if offers.extended_class and not only_claims_exclusive(node_infos.values()):
            offers = msgspec.structs.replace(offers, extended_class="")  # the extender decides
        self._offers = offers
        self._nominations = nominations
        self._devices: dict[NodeName, DeviceMap] = dict(offers.devices)
        self._nodes = dict(nodes)
        self._policy = policy
        self._grouping = grouping
        self._held: Mapping[Key, Allocation] | None = None
        self._shared: dict[Key, Placement] = {}
        self._parent: SimulatedCluster | None = None
        self._known: dict[_Kind, Verdicts] = {}
        self._stale: dict[_Kind, set[NodeName]] = {}
        self._changed: set[NodeName] = set()
        self._granted = 0

    @classmethod
    def of(
        cls,
        cluster: Candidates,
        policy: ClusterPolicy,
        *,
        kinds: int | None = None,
        nominations: Nominations | None = None,
    ) -> "SimulatedCluster":
        """A copy of a cluster whose extender has this policy; else as the class."""
        return cls(
            cluster.node_infos,
            policy.name,
            grouping=policy.grouping,
            nodes=cluster.nodes,
            kinds=kinds,
            offers=cluster.offers,
            nominations=nominations,
        )

    @property
    def node_infos(self) -> Mapping[NodeName, NodeInfo]:
        """The current state."""
        return self._node_infos

    def branch(self) -> "SimulatedCluster":
        """Another one that begins here; this one must not change while the other is used."""
        other = SimulatedCluster(
            self._node_infos,
            self._policy,
            grouping=self._grouping,
            nodes=self._nodes,
            offers=self._offers,
            nominations=self._nominations,
        )
        other._devices, other._shared = dict(self._devices), dict(self._shared)
        other._held = self._held
        other._parent, other._granted = self, self._granted
        return other

    def change(self, node_info: NodeInfo, node: CandidateNode | None = None) -> None:
        """Replace the state of a node by another one, computed before.

        Args:
            node: the input of kube-scheduler's own rules, where that changes as well.
        """
        self._node_infos[node_info.name] = node_info
        self._publish(node_info)
        if node is not None:
            self._nodes[node_info.name] = node
        self._changed.add(node_info.name)
        for names in self._stale.values():
            names.add(node_info.name)

    def end(self, name: NodeName, requests: Mapping[PodUid, Resources]) -> None:
        """Let pods of a node end.

        Args:
            requests: what each of them requests besides GPUs.
        """
        node_info, node = self._node_infos[name].copy(), self._nodes.get(name)
        for uid, amounts in requests.items():
            node_info.drop(uid)
            give_to_host(node_info, amounts)
            node = node.plus(amounts, pods=-1) if node is not None else None
        self.change(node_info, node)

    def grant(self, whatif_pod: WhatIfPod) -> WhatIfOutcome:
        """Place one pod on the best node of those that fit, the first of equals."""
        return complete(self.granting(whatif_pod))

    def granting(self, whatif_pod: WhatIfPod) -> Steps[WhatIfOutcome]:
        """As :meth:`grant`, in steps between which the simulation must not be used."""
        held = (yield from self._claims()) if whatif_pod.named else {}
        shared = {key: at for key in whatif_pod.named if (at := self._allocated(key, held))}
        verdicts = yield from self._verdicts(whatif_pod, shared)
        yield
        best: Rated | None = None
        fitting, ends = 0, False
        for verdict in verdicts.values():
            if isinstance(verdict, FitError):
                ends |= verdict.ends_attempt
                continue
            fitting += 1
            if best is None or verdict.rating > best.rating:
                best = verdict
        if best is None or ends:
            refused = {n: v for n, v in verdicts.items() if isinstance(v, FitError)}
            return WhatIfOutcome(whatif_pod.name, refusals=refused, node=whatif_pod.node)
        shown = best.placement
        if shared and not (shown.mem or shown.group):
            shown = next(iter(shared.values()))
        self._shared |= {key: shown for key in whatif_pod.named if key not in shared}
        node_info = self._node_infos[best.placement.node].copy()
        self._granted += 1
        node_info.put(allocation_for(whatif_pod, best.placement, self._granted))
        take_from_host(node_info, whatif_pod.constraints.requests)
        self.change(node_info)
        node = self._nodes.get(node_info.name)
        if node is not None:
            self._nodes[node_info.name] = node.plus(whatif_pod.constraints.requests)
        return WhatIfOutcome(whatif_pod.name, shown, fitting=fitting, node=whatif_pod.node)

    def _claims(self) -> Steps[Mapping[Key, Allocation]]:
        """What claims held at the beginning, by namespace and name."""
        if self._held is None:
            found: dict[Key, Allocation] = {}
            for node_info in self._node_infos.values():
                claims = [a for a in node_info.allocations.values() if a.users is not None]
                found |= {(each.namespace, each.name): each for each in claims}
                yield
            self._held = found
        return self._held

    def _allocated(self, key: Key, held: Mapping[Key, Allocation]) -> Placement | None:
        """Where a claim is allocated, in the unit of the node; ``None`` where it is not."""
        if key in self._shared or key not in held:
            return self._shared.get(key)
        placement, shape = held[key].placement, self._node_infos[held[key].placement.node].shape
        counted = {i: shape.counted(mem, held[key].unit) for i, mem in placement.mem.items()}
        return msgspec.structs.replace(placement, mem=counted)

    def _verdicts(self, pod: WhatIfPod, shared: Mapping[Key, Placement]) -> Steps[Verdicts]:
        """The result of every node that the pod may go to.

        Args:
            shared: its claims that are allocated: they decide the node.
        """
        named = zip(pod.named, pod.specs, strict=False)
        own = tuple(spec for key, spec in named if key not in shared)
        specs = (*own, *pod.specs[len(pod.named) :])
        kind = (pod.pod_request, pod.constraints, specs, pod.priority)
        at = {each.node for each in shared.values()}
        nodes = {pod.node} if pod.node else at
        if len(nodes | at) > 1:
            words = f"its claims are allocated on {' and '.join(sorted(at))}"
            return {name: FitError(name, Code.NODE_AFFINITY, detail=words) for name in nodes}
        if not nodes:
            return (yield from self.verdicts_of(kind))
        (name,) = nodes
        node_info = self._node_infos.get(name)
        return {name: self._verdict(node_info, kind)} if node_info is not None else {}

    def verdicts_of(self, kind: _Kind) -> Steps[Verdicts]:
        """The result of every node for a kind of pods; only changed nodes are evaluated again."""
        if kind not in self._known:
            if len(self._known) == self._kinds:
                oldest = next(iter(self._known))
                del self._known[oldest], self._stale[oldest]
            self._known[kind], self._stale[kind] = yield from self._learnt(kind)
        verdicts, stale = self._known[kind], self._stale[kind]
        for name in stale:
            verdicts[name] = self._verdict(self._node_infos[name], kind)
        stale.clear()
        return verdicts

    def _learnt(self, kind: _Kind) -> Steps[tuple[Verdicts, set[NodeName]]]:
        if self._parent is not None:
            return dict(complete(self._parent.verdicts_of(kind))), set(self._changed)
        found: Verdicts = {}
        for name, node_info in self._node_infos.items():
            found[name] = self._verdict(node_info, kind)
            yield
        return found, set()

    def _verdict(self, node_info: NodeInfo, kind: _Kind) -> Rated | FitError:
        pod_request, constraints, specs, _ = kind
        specs = specs or self._extended(node_info, pod_request)
        if specs or pod_request == NO_REQUEST:
            return self._claim_verdict(node_info, constraints, specs)
        node = self._nodes.get(node_info.name)
        why = admit(node_info, pod_request, node, constraints) if node is not None else None
        if why is not None:
            return why
        placement = place(node_info, pod_request, self._policy, grouping=self._grouping)
        if isinstance(placement, FitError):
            return placement
        rated = rate(node_info, pod_request, placement, self._policy, grouping=self._grouping)
        last = avoided(node, constraints) if node is not None else 0
        bound = self._bound(node_info, node, kind, placement)
        return bound if isinstance(bound, FitError) else Rated(bound, (-last, *rated))

    def _bound(
        self, node_info: NodeInfo, node: CandidateNode | None, kind: _Kind, placement: Placement
    ) -> Placement | FitError:
        """Where bind places the pod: on no GPU that a pod nominated to the node waits for."""
        pod_request, constraints, _, priority = kind
        pod = Pod(PodUid(""), "", "", priority=priority)
        held = self._nominations.before(node_info.name, pod) if self._nominations else []
        if not held:
            return placement
        if node is not None:
            why = host_refusal_beside(node_info, node, constraints, held)
            if why is not None:
                return why
        kept, free = refusal_beside(node_info, pod_request, held), node_beside(node_info, held)
        return kept or place(free, pod_request, self._policy, grouping=self._grouping)

    def _publish(self, node_info: NodeInfo) -> None:
        """The node agent publishes the devices in the policy's order after every change."""
        devices = self._devices.get(node_info.name)
        if devices:
            order = device_order(node_info, self._policy)
            self._devices[node_info.name] = {i: devices[i] for i in order if i in devices}

    def _extended(self, node_info: NodeInfo, pod_request: PodRequest) -> tuple[ClaimSpec, ...]:
        """The claim that kube-scheduler makes for exclusive GPUs on a node that offers claims."""
        offered = node_info.name in self._devices and self._offers.extended_class
        if not (offered and pod_request.gpus) or pod_request.mem or pod_request.core:
            return ()
        return (self._offers.exclusive(pod_request.gpus),)

    def _claim_verdict(
        self, node_info: NodeInfo, constraints: PodConstraints, specs: tuple[ClaimSpec, ...]
    ) -> Rated | FitError:
        on_node = ClaimNode(node_info, self._devices.get(node_info.name, {}))
        rules = ClaimRules(specs, self._offers.classes)
        why = refusal(on_node, rules)
        if why is not None and why.code is Code.NO_RESOURCE_SLICE:
            return why
        node = self._nodes.get(node_info.name)
        of_node = next(constraint_refusals(node, constraints), None) if node is not None else None
        if why := of_node or why:
            return why
        placement = first_fit(on_node, rules) or Placement(node_info.name, {}, {})
        request = request_on_host(constraints.requests)
        rated = rate(node_info, request, placement, self._policy, grouping=self._grouping)
        last = avoided(node, constraints) if node is not None else 0
        return Rated(placement, (-last, *rated))


def allocation_for(whatif_pod: WhatIfPod, placement: Placement, number: int) -> Allocation:
    """The allocation of a placed pod; names may be equal, numbers are not."""
    return Allocation(
        uid=PodUid(f"what-if/{number}"),
        namespace="",
        name=whatif_pod.name,
        state=AllocationState.ASSUMED,
        placement=placement,
        exclusive=whatif_pod.pod_request.whole_device,
    )
