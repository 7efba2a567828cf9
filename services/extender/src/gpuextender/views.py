"""What people and tools are shown: nodes card by card, and why a pod waits or where it sits.

Amounts of memory are in the unit of the node, which stands beside them; ``null`` means that nobody
has said what a unit is (an original device plugin). Every text is one that the core wrote.
"""

from collections.abc import Iterable

import msgspec

from gpucore.account import NodeAccount
from gpucore.cards import CardAccount
from gpucore.explain import placement_sentence, sentence
from gpucore.fit import fit
from gpucore.grouping import Grouping
from gpucore.ledger import Ledger
from gpucore.model import Claim, Demand, Refusal
from gpucore.policy import score
from gpucore.wire.gangs import gang_of
from gpucore.wire.pods import Pod
from gpuextender.slices import Slices
from gpuextender.state import Asking


class PodView(msgspec.Struct, rename="camel"):
    """A pod on a card: units of memory, percent of compute, or the whole card."""

    namespace: str
    name: str
    uid: str
    state: str
    units: int
    core: int
    whole: bool


class CardView(msgspec.Struct, rename="camel"):
    """A card. ``total`` is what may be given out; ``free`` is never below zero."""

    index: int
    uuid: str
    model: str
    total: int
    used: int
    free: int
    core_used: int
    healthy: bool
    overfull: bool
    isolation: str
    pods: list[PodView]


class NodeView(msgspec.Struct, rename="camel"):
    """A node. ``pending`` units are held by pods on no known card."""

    name: str
    present: bool
    unit: str | None
    total: int
    used: int
    free: int
    pending: int
    policy: str
    faults: list[str]
    cards: list[CardView]


class NodesView(msgspec.Struct):
    """All nodes that have cards or are held to have some, by name."""

    nodes: list[NodeView]


class AskView(msgspec.Struct, rename="camel"):
    """What a pod asks for, by kubelet's formula."""

    mem: int
    core: int
    gpus: int
    cards: int
    policy: str
    fault: str


class FitView(msgspec.Struct, rename="camel"):
    """A node that can take the pod, and how good it is (0..10)."""

    node: str
    score: int


class CardRefusalView(msgspec.Struct, rename="camel"):
    """Why one card cannot; figures are in the unit of the code."""

    index: int
    code: str
    free: int
    total: int
    asked: int


class RefusalView(msgspec.Struct, rename="camel"):
    """Why a node cannot; ``unresolvable``: no eviction could help."""

    node: str
    code: str
    text: str
    unresolvable: bool
    cards: list[CardRefusalView]


class ExplainView(msgspec.Struct, rename="camel"):
    """A pod: ``placed`` with its place, or ``waiting`` with what every node says to it."""

    namespace: str
    name: str
    uid: str
    state: str
    text: str
    node: str = ""
    asks: AskView | None = None
    fits: list[FitView] = []
    refusals: list[RefusalView] = []
    faults: list[str] = []


async def nodes_view(ledger: Ledger, slices: Slices) -> NodesView:
    """All nodes of interest."""
    views = []
    for account in sorted(ledger.nodes().values(), key=lambda account: account.name):
        if account.cards:
            views.append(node_view(account))
            await slices.breathe()
    return NodesView(views)


def node_view(account: NodeAccount) -> NodeView:
    """One node."""
    return NodeView(
        name=account.name,
        present=account.present,
        unit=None if account.unit is None else str(account.unit),
        total=account.total_units,
        used=account.used_units,
        free=max(account.free_units() - account.reserved_units(), 0),
        pending=account.pending,
        policy=account.shape.policy,
        faults=list(account.shape.faults),
        cards=[_card(account, card) for card in account.cards.values()],
    )


def _card(account: NodeAccount, card: CardAccount) -> CardView:
    gpu = card.gpu
    return CardView(
        index=card.index,
        uuid=gpu.uuid if gpu else "",
        model=gpu.model if gpu else "",
        total=card.total,
        used=card.used,
        free=card.free,
        core_used=card.core_used,
        healthy=card.healthy,
        overfull=card.overfull,
        isolation=gpu.rung if gpu else "",
        pods=list(_pods(account, card)),
    )


def _pods(account: NodeAccount, card: CardAccount) -> Iterable[PodView]:
    for uid, hold in card.holders.items():
        claim = account.claims[uid]
        yield PodView(
            claim.namespace, claim.name, uid, claim.state, hold.mem, hold.core, hold.whole
        )


def placed_view(claim: Claim, account: NodeAccount | None) -> ExplainView:
    """A pod that holds a place."""
    unit = account.unit if account else None
    return ExplainView(
        namespace=claim.namespace,
        name=claim.name,
        uid=claim.uid,
        state="placed",
        text=placement_sentence(claim.placement, unit),
        node=claim.placement.node,
        faults=list(claim.faults),
    )


async def waiting_view(
    ledger: Ledger, asking: Asking, slices: Slices, *, policy: str, grouping: Grouping
) -> ExplainView:
    """A pod that waits: what each node with cards says to it."""
    pod, demand = asking.pod, asking.demand
    view = ExplainView(pod.namespace, pod.name, pod.uid, "waiting", "asks for no GPU")
    if demand is None:
        return view
    view.asks = ask_view(demand)
    for account in sorted(ledger.nodes().values(), key=lambda account: account.name):
        if not account.cards:
            continue
        refusal = fit(account, demand)
        if refusal is None:
            rating = score(account, demand, policy, grouping=grouping)
            view.fits.append(FitView(account.name, rating))
        else:
            view.refusals.append(refusal_view(refusal))
        await slices.breathe()
    count = len(view.fits) + len(view.refusals)
    gates = ", once its scheduling gates are removed" if pod.gated else ""
    view.text = f"{len(view.fits)} of {count} nodes with GPUs can take it{gates}{_together(pod)}"
    return view


def _together(pod: Pod) -> str:
    """What is to be known of a pod that is never placed alone."""
    gang = gang_of(pod)
    return f", but only with all {gang.size} pods of gang {gang.name}" if gang else ""


def ask_view(demand: Demand) -> AskView:
    """A demand."""
    return AskView(demand.mem, demand.core, demand.gpus, demand.cards, demand.policy, demand.fault)


def refusal_view(refusal: Refusal) -> RefusalView:
    """A refusal."""
    return RefusalView(
        node=refusal.node,
        code=refusal.code,
        text=sentence(refusal),
        unresolvable=refusal.unresolvable,
        cards=[
            CardRefusalView(card.index, card.code, card.free, card.total, card.asked)
            for card in refusal.cards
        ],
    )
