"""Why a pod waits, or where it sits: the extender's own decision, taken again and written down.

The same code of the core decides as in the scheduler, so the reasons are the reasons. What it
cannot see are the scheduler's other rules (CPU, taints, affinity); their verdict is quoted.
"""

from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from typing import Final

import msgspec

from gpucore.account import NodeAccount
from gpucore.explain import CATALOGUE, headline, placement_sentence, sentence, unit_of
from gpucore.fit import fit
from gpucore.gang import Seating, Shortage, seat
from gpucore.gangmembers import Member, Members, Postponed, member_of, members_of
from gpucore.gangplaces import Rules
from gpucore.gangwords import gang_words
from gpucore.hindsight import why
from gpucore.ledger import Ledger
from gpucore.model import Claim, Code, Demand, Refusal
from gpucore.remedies import helps
from gpucore.units import NodeName
from gpucore.wire.gangs import Gang, gang_of
from gpucore.wire.pods import demand_of
from gpucore.wire.podspec import Pod
from gpuinspect.errors import NotFoundError
from gpuinspect.sightings import Sightings, sightings
from gpuinspect.snapshots import Snapshot


class State(StrEnum):
    """Where the pod stands."""

    ASKS_NOTHING = "asks nothing of GPUs"
    FINISHED = "finished: it holds nothing any more"
    PLACED = "placed"
    PENDING = "bound to a node, but on no known card"
    WAITING = "waiting: no node can take it now"
    FITS = "waiting, although a node could take it"
    GANG_WAITS = "waiting: there is no room for all pods of its gang"
    GANG_INCOMPLETE = "waiting: not all pods of its gang exist yet"


class Group(msgspec.Struct, frozen=True):
    """Nodes that refuse the pod for one reason.

    Attributes:
        reason: without figures.
        nodes: by name.
        largest: most that is free for it on any of them, in ``measure``; ``asked`` likewise.
        example: the whole sentence for the node that comes nearest.
    """

    code: Code
    reason: str
    nodes: tuple[NodeName, ...]
    largest: int
    asked: int
    measure: str
    example: str
    remedy: str


class Explanation(msgspec.Struct, frozen=True):
    """Everything there is to say about one pod.

    Attributes:
        asks: its demand in words; empty when it asks nothing.
        where: its cards in words; empty when it has none.
        why: why these cards; empty when it has none.
        neighbours: for each of its cards, what is on it.
        groups: refusing nodes by reason, most nodes first; for pods that wait.
        fits: nodes that could take it now, as far as GPUs go.
        helps: what would help, the smallest step first.
    """

    pod: Pod
    state: State
    asks: str = ""
    where: str = ""
    why: str = ""
    neighbours: tuple[str, ...] = ()
    faults: tuple[str, ...] = ()
    groups: tuple[Group, ...] = ()
    fits: tuple[NodeName, ...] = ()
    helps: tuple[str, ...] = ()
    sightings: Sightings = Sightings()


def find(snapshot: Snapshot, *, namespace: str, name: str) -> Pod:
    """The pod of this name.

    Raises:
        NotFoundError: there is none.
    """
    for pod in snapshot.pods:
        if (pod.namespace, pod.name) == (namespace, name):
            return pod
    raise NotFoundError(f'pods "{name}" not found in namespace "{namespace}"')


def explain(snapshot: Snapshot, pod: Pod, ledger: Ledger) -> Explanation:
    """Why ``pod`` waits or where it sits.

    Args:
        snapshot: holds the pod.
        pod: the pod.
        ledger: the books of the same snapshot.

    Raises:
        WireError: an amount is no Kubernetes quantity (no API server accepts such an object).
    """
    demand, seen = demand_of(pod, ledger.names), sightings(snapshot, pod)
    if demand is None:
        return Explanation(pod, State.ASKS_NOTHING, sightings=seen)
    base = Explanation(pod, State.FINISHED, asks=_asks(demand), sightings=seen)
    if pod.finished:
        return base
    claim = ledger.claim(pod.uid)
    if claim is not None:
        account = ledger.nodes()[claim.placement.node]
        return _placed(base, claim, demand, account)
    return _waiting(base, demand, ledger, snapshot)


def _asks(demand: Demand) -> str:
    if demand.gpus:
        return f"{demand.gpus} whole card{'s' if demand.gpus > 1 else ''}"
    parts = [f"{demand.mem} units of memory"] if demand.mem else []
    parts += [f"{demand.core} percent of compute"] if demand.core else []
    spread = f", spread over {demand.cards} cards" if demand.cards > 1 else " on one card"
    alone = ", alone on it" if demand.whole_device else ""
    rung = f", enforced by {demand.rung.value}" if demand.rung.value != "none" else ""
    return " and ".join(parts) + spread + alone + rung


def _placed(base: Explanation, claim: Claim, demand: Demand, account: NodeAccount) -> Explanation:
    known = claim.placement.mem or claim.placement.core or claim.placement.group
    return msgspec.structs.replace(
        base,
        state=State.PLACED if known else State.PENDING,
        where=placement_sentence(claim.placement, claim.unit or unit_of(account)),
        why=why(claim, demand, account) if known and account.present else "",
        neighbours=tuple(_neighbours(claim, account)),
        faults=claim.faults,
        helps=() if known else (_UNPLACED,),
    )


_UNPLACED: Final = (
    "the scheduler that bound it did not call the extender: name the scheduler in its"
    " spec.schedulerName and create it again (see 'gpushare doctor')"
)


def _neighbours(claim: Claim, account: NodeAccount) -> Iterator[str]:
    unit = unit_of(account)
    for index, card in account.cards.items():
        if claim.uid not in card.holders:
            continue
        others = sorted(
            f"{account.claims[uid].namespace}/{account.claims[uid].name} ({hold.mem})"
            for uid, hold in card.holders.items()
            if uid != claim.uid
        )
        beside = f"beside {', '.join(others)}" if others else "alone"
        yield f"card {index}: {beside}; {card.free} of {card.total} {unit} free"


def _waiting(base: Explanation, demand: Demand, ledger: Ledger, snapshot: Snapshot) -> Explanation:
    accounts, nodes = ledger.nodes(), snapshot.nodes
    verdicts = {node.name: fit(accounts[node.name], demand) for node in nodes}
    refused = {name: verdict for name, verdict in verdicts.items() if verdict is not None}
    open_nodes = frozenset(n.name for n in nodes if n.ready and not n.unschedulable)
    fits = tuple(sorted(verdicts.keys() - refused.keys()))
    found = msgspec.structs.replace(
        base,
        state=State.FITS if open_nodes.intersection(fits) else State.WAITING,
        groups=tuple(grouped(refused, accounts)),
        fits=fits,
        helps=tuple(helps(demand, ledger, refused, fits=fits, open_nodes=open_nodes)),
    )
    gang = gang_of(base.pod)
    if gang is None or not fits:
        return found
    members = _members(snapshot.pods, Member(base.pod, demand), gang, ledger)
    names = open_nodes.intersection(fits)
    return _with_gang(
        found, seat(ledger, gang, demand, names, Rules(), members=members, now_ns=0), ledger
    )


def _members(pods: Iterable[Pod], asking: Member, gang: Gang, ledger: Ledger) -> Members:
    """The pods of a gang that exist."""
    named = (gang.namespace, gang.name)
    same = [pod for pod in pods if (its := gang_of(pod)) and (its.namespace, its.name) == named]
    members = [one for pod in same if (one := member_of(pod, ledger.names)) is not None]
    placed = [one.pod.uid for one in members if ledger.claim(one.pod.uid) is not None]
    return members_of(asking, members, placed)


def _with_gang(
    found: Explanation, answer: Seating | Shortage | Postponed, ledger: Ledger
) -> Explanation:
    """A pod of a gang for which there is room alone: it waits until all can be placed."""
    words = tuple(gang_words(answer, ledger, Rules()))
    if not isinstance(answer, Seating):
        state = State.GANG_WAITS if isinstance(answer, Shortage) else State.GANG_INCOMPLETE
        return msgspec.structs.replace(found, state=state, helps=words)
    return msgspec.structs.replace(found, helps=(*found.helps, *words))


def grouped(
    refused: Mapping[NodeName, Refusal], accounts: Mapping[NodeName, NodeAccount]
) -> list[Group]:
    """Refusals by reason, most nodes first."""
    by_code: dict[Code, list[Refusal]] = {}
    for refusal in refused.values():
        by_code.setdefault(refusal.code, []).append(refusal)
    groups = [_group(code, alike, accounts) for code, alike in by_code.items()]
    return sorted(groups, key=lambda group: (-len(group.nodes), group.code))


def _group(code: Code, alike: Iterable[Refusal], accounts: Mapping[NodeName, NodeAccount]) -> Group:
    refusals = sorted(alike, key=lambda refusal: (-_largest(refusal), refusal.node))
    nearest = refusals[0]
    return Group(
        code=code,
        reason=headline(nearest) if code is not Code.NOT_SHARED else _sentence_of(code),
        nodes=tuple(sorted(refusal.node for refusal in refusals)),
        largest=_largest(nearest),
        asked=nearest.asked,
        measure=_measure(code, accounts[nearest.node]),
        example=sentence(nearest),
        remedy=CATALOGUE[code].remedy,
    )


def _sentence_of(code: Code) -> str:
    return CATALOGUE[code].sentence.rstrip(".")


def _largest(refusal: Refusal) -> int:
    """The most that one of its cards has free, or has at all; of whole cards, how many are free."""
    if refusal.code in {Code.INSUFFICIENT_GPUS, Code.PENDING_UNITS}:
        return refusal.free
    cards = [card for card in refusal.cards if card.code is refusal.code]
    if refusal.code is Code.TOO_LARGE:
        return max((card.total for card in cards), default=0)
    return max((card.free for card in cards), default=0)


def _measure(code: Code, account: NodeAccount) -> str:
    if code is Code.INSUFFICIENT_GPUS:
        return "cards"
    return "percent" if code is Code.INSUFFICIENT_CORE else str(unit_of(account))
