"""What if these pods came, and these nodes: asked of a copy of the books.

The core places the pods one after the other with the code that places real ones, on the nodes that
kube-scheduler's own rules admit. The rules that are not evaluated are noted beside the answer.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from gpucore.account import NodeAccount
from gpucore.explain import unit_of
from gpucore.ledger import Ledger
from gpucore.scheduling.candidates import Candidates
from gpucore.scheduling.constraints import CandidateNode
from gpucore.units import MemoryUnit, NodeName
from gpucore.whatif import Outcome, Wish, what_if
from gpucore.wire.names import Names
from gpucore.wire.pods import demand_of
from gpuinspect.candidates import candidates
from gpuinspect.errors import NotFoundError
from gpuinspect.explaining import Group, gated, grouped
from gpuinspect.manifests import ManifestError, Wanted
from gpuinspect.schedulers import ClusterPolicy, schedulers_of
from gpuinspect.snapshots import Snapshot


class Answer(msgspec.Struct, frozen=True):
    """What becomes of one pod.

    Attributes:
        unit: what the placement is counted in.
        groups: why it fits nowhere; empty where it does.
    """

    outcome: Outcome
    unit: MemoryUnit | None = None
    groups: tuple[Group, ...] = ()

    @property
    def fits(self) -> bool:
        """It has a place."""
        return self.outcome.placement is not None


class Addition(msgspec.Struct, frozen=True):
    """Empty nodes to add: ``count`` of them, made like the node ``like``."""

    count: int = 0
    like: str = ""


def ask(
    snapshot: Snapshot,
    wanted: Sequence[Wanted],
    ledger: Ledger,
    *,
    addition: Addition,
    policy: ClusterPolicy,
    nodes: Candidates | None = None,
) -> list[Answer]:
    """What becomes of the wanted pods, in order.

    Args:
        snapshot: the cluster.
        wanted: the pods.
        ledger: the books of the cluster, which stay as they are.
        addition: nodes that might be added.
        policy: what holds where neither pod nor node names a policy.
        nodes: those of the same snapshot, where they are known already.

    Raises:
        NotFoundError: there is no node to make the additional ones like.
        ManifestError: a pod asks nothing of GPUs.
    """
    found = nodes or candidates(snapshot, ledger)
    accounts = dict(sorted(found.accounts.items()))
    places = dict(found.nodes)
    for name, account in _added(ledger, addition):
        accounts[name] = account
        places[name] = _empty(name, places[NodeName(addition.like)])
    wishes = [wish for each in wanted for wish in _wishes(each, ledger.names)]
    result = what_if(accounts, wishes, policy.name, grouping=policy.grouping, nodes=places)
    return [_answer(outcome, result.accounts) for outcome in result.outcomes]


def remarks(snapshot: Snapshot, wanted: Iterable[Wanted], names: Names) -> Iterator[str]:
    """What the answer leaves open about each pod, as sentences."""
    schedulers = schedulers_of(snapshot, names)
    for each in wanted:
        pod, needs = each.pod, each.constraints
        unseen = schedulers.misses(pod.scheduler_name, new=True)
        if unseen:
            yield f"{pod.name}: {unseen}"
        if needs.gates:
            yield f"{pod.name}: {gated(needs.gates)}"
        if needs.unsupported:
            yield f"{pod.name}: not evaluated: {', '.join(needs.unsupported)}"


def _empty(name: NodeName, like: CandidateNode) -> CandidateNode:
    return msgspec.structs.replace(
        like, name=name, unschedulable=False, ready=True, requested={}, pods=0
    )


def _added(ledger: Ledger, addition: Addition) -> Iterator[tuple[NodeName, NodeAccount]]:
    if not addition.count:
        return
    model = ledger.node(NodeName(addition.like))
    if model is None or not model.present:
        raise NotFoundError(f'nodes "{addition.like}" not found')
    for number in range(1, addition.count + 1):
        name = NodeName(f"{addition.like}+{number}")
        yield name, NodeAccount(name, model.shape)


def _wishes(wanted: Wanted, names: Names) -> list[Wish]:
    demand = demand_of(wanted.pod, names)
    name, needs = wanted.pod.name, wanted.constraints
    if demand is None:
        raise ManifestError(f"{name} asks nothing of GPUs: no limit of {names.domain}")
    if wanted.replicas == 1:
        return [Wish(name, demand, needs)]
    return [Wish(f"{name}-{number}", demand, needs) for number in range(wanted.replicas)]


def _answer(outcome: Outcome, accounts: Mapping[NodeName, NodeAccount]) -> Answer:
    if outcome.placement is None:
        return Answer(outcome, groups=tuple(grouped(outcome.refusals, accounts)))
    return Answer(outcome, unit=unit_of(accounts[outcome.placement.node]))
