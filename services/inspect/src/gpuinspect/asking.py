"""What if these pods came, and these nodes: asked of a copy of the books.

The core places the pods one after the other with the code that places real ones. Nodes that take no
new pods are left out, and so are those that the pod's nodeSelector excludes; other rules of the
scheduler (CPU, taints, affinity) are not looked at.
"""

from collections.abc import Iterator, Mapping, Sequence

import msgspec

from gpucore.account import NodeAccount
from gpucore.explain import unit_of
from gpucore.ledger import Ledger
from gpucore.units import MemoryUnit, NodeName
from gpucore.whatif import Outcome, Wish, what_if
from gpucore.wire.names import Names
from gpucore.wire.nodes import Node
from gpucore.wire.pods import demand_of
from gpuinspect.errors import NotFoundError
from gpuinspect.explaining import Group, grouped
from gpuinspect.manifests import ManifestError, Wanted
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
    policy: str = "",
) -> list[Answer]:
    """What becomes of the wanted pods, in order.

    Args:
        snapshot: the cluster.
        wanted: the pods.
        ledger: the books of the cluster, which stay as they are.
        addition: nodes that might be added.
        policy: name of the policy where neither pod nor node says one; empty for the default.

    Raises:
        NotFoundError: there is no node to make the additional ones like.
        ManifestError: a pod asks nothing of GPUs.
    """
    labels = {node.name: node.labels for node in snapshot.nodes}
    accounts = dict(_open(snapshot, ledger))
    for name, account in _added(ledger, addition):
        accounts[name], labels[name] = account, labels[NodeName(addition.like)]
    answers: list[Answer] = []
    for each in wanted:
        eligible = [n for n in accounts if each.node_selector.items() <= labels[n].items()]
        result = what_if({n: accounts[n] for n in eligible}, _wishes(each, ledger.names), policy)
        accounts |= result.accounts
        answers += [_answer(outcome, accounts) for outcome in result.outcomes]
    return answers


def _open(snapshot: Snapshot, ledger: Ledger) -> Iterator[tuple[NodeName, NodeAccount]]:
    for node in sorted(snapshot.nodes, key=_by_name):
        if node.ready and not node.unschedulable:
            yield node.name, ledger.nodes()[node.name]


def _by_name(node: Node) -> str:
    return node.name


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
    name = wanted.pod.name
    if demand is None:
        raise ManifestError(f"{name} asks nothing of GPUs: no limit of {names.domain}")
    if wanted.replicas == 1:
        return [Wish(name, demand)]
    return [Wish(f"{name}-{number}", demand) for number in range(wanted.replicas)]


def _answer(outcome: Outcome, accounts: Mapping[NodeName, NodeAccount]) -> Answer:
    if outcome.placement is None:
        return Answer(outcome, groups=tuple(grouped(outcome.refusals, accounts)))
    return Answer(outcome, unit=unit_of(accounts[outcome.placement.node]))
