"""Why a pod waits, or where it sits: the extender's own decision, taken again and written down.

The same code of the core decides as in the scheduler, so the reasons are the reasons; the rules of
kube-scheduler that it does not evaluate are named, and the scheduler's message is quoted.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Final

import msgspec

from gpucore.account import NodeAccount
from gpucore.explain import (
    CATALOGUE,
    CONSTRAINT_CODES,
    amount_hint,
    headline,
    placement_sentence,
    resource_words,
    sentence,
    unit_of,
)
from gpucore.gang import Seating, Shortage, seat
from gpucore.gangmembers import Member, Members, Postponed, member_of, members_of
from gpucore.gangplaces import Rules
from gpucore.gangwords import gang_words
from gpucore.hindsight import why
from gpucore.ledger import Ledger
from gpucore.model import Claim, Code, Demand, Refusal
from gpucore.scheduling.candidates import Candidates, PendingPod
from gpucore.suggestions import suggestions
from gpucore.units import NodeName
from gpucore.wire.gangs import Gang, gang_of
from gpucore.wire.pods import demand_of
from gpucore.wire.podspec import Pod
from gpuinspect.candidates import candidates, constraints_of
from gpuinspect.errors import NotFoundError
from gpuinspect.schedulers import ClusterPolicy, policy_of, schedulers_of
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
    GATED = "waiting: its scheduling gates keep schedulers away"
    GANG_WAITS = "waiting: there is no room for all pods of its gang"
    GANG_INCOMPLETE = "waiting: not all pods of its gang exist yet"


class Group(msgspec.Struct, frozen=True):
    """Nodes that refuse the pod for one reason.

    Attributes:
        reason: without figures.
        detail: what makes the reason one, where it is not about GPUs; or a hint about the amount.
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
    detail: str = ""


class Explanation(msgspec.Struct, frozen=True):
    """Everything there is to say about one pod.

    Attributes:
        asks: its demand in words; empty when it asks nothing.
        where: its cards in words; empty when it has none.
        why: why these cards; empty when it has none.
        neighbours: for each of its cards, what is on it.
        groups: refusing nodes by reason, most nodes first; for pods that wait.
        fits: nodes that admit it now, by all rules that are evaluated.
        helps: what would help, the smallest step first.
        gates: names of its scheduling gates.
        policy: of the cluster.
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
    gates: tuple[str, ...] = ()
    policy: ClusterPolicy = ClusterPolicy()


def find(snapshot: Snapshot, *, namespace: str, name: str) -> Pod:
    """The pod of this name.

    Raises:
        NotFoundError: there is none.
    """
    for pod in snapshot.pods:
        if (pod.namespace, pod.name) == (namespace, name):
            return pod
    raise NotFoundError(f'pods "{name}" not found in namespace "{namespace}"')


def explain(
    snapshot: Snapshot,
    pod: Pod,
    ledger: Ledger,
    *,
    policy: str = "",
    nodes: Candidates | None = None,
) -> Explanation:
    """Why ``pod`` waits or where it sits.

    Args:
        snapshot: holds the pod.
        pod: the pod.
        ledger: the books of the same snapshot.
        policy: name of a policy to use in place of the extender's; empty for none.
        nodes: those of the same snapshot, where they are known already.

    Raises:
        WireError: an amount is no Kubernetes quantity (no API server accepts such an object).
    """
    demand, seen = demand_of(pod, ledger.names), sightings(snapshot, pod)
    if demand is None:
        return Explanation(pod, State.ASKS_NOTHING, sightings=seen)
    base = Explanation(
        pod,
        State.FINISHED,
        asks=_asks(demand),
        sightings=seen,
        policy=policy_of(snapshot, policy),
    )
    if pod.finished:
        return base
    claim = ledger.claim(pod.uid)
    if claim is not None:
        account = ledger.nodes()[claim.placement.node]
        return _placed(base, claim, demand, account)
    waiting = PendingPod(demand, constraints_of(snapshot, pod, ledger.names))
    found = _waiting(base, waiting, ledger, nodes or candidates(snapshot, ledger), snapshot)
    return _never_scheduled(found, waiting, snapshot, ledger)


def _asks(demand: Demand) -> str:
    if demand.gpus:
        return f"{demand.gpus} whole card{'s' if demand.gpus > 1 else ''}"
    parts = [f"{memory_asked(demand.mem)} of memory"] if demand.mem else []
    parts += [f"{demand.core} percent of compute"] if demand.core else []
    spread = f", spread over {demand.cards} cards" if demand.cards > 1 else " on one card"
    alone = ", alone on it" if demand.whole_device else ""
    rung = f", enforced by {demand.rung.value}" if demand.rung.value != "none" else ""
    return " and ".join(parts) + spread + alone + rung


def memory_asked(amount: int) -> str:
    """``8 units``, or ``8Gi`` where bytes were written."""
    for size, suffix in ((30, "Gi"), (20, "Mi")):
        if amount >> size and not amount % (1 << size):
            return f"{amount >> size}{suffix}"
    return f"{amount} units"


def _placed(base: Explanation, claim: Claim, demand: Demand, account: NodeAccount) -> Explanation:
    known = claim.placement.mem or claim.placement.core or claim.placement.group
    return msgspec.structs.replace(
        base,
        state=State.PLACED if known else State.PENDING,
        where=placement_sentence(claim.placement, claim.unit or unit_of(account)),
        why=_why(claim, demand, account, base.policy) if known and account.present else "",
        neighbours=tuple(_neighbours(claim, account)),
        faults=claim.faults,
        helps=() if known else (_UNPLACED,),
    )


def _why(claim: Claim, demand: Demand, account: NodeAccount, policy: ClusterPolicy) -> str:
    return why(claim, demand, account, policy.name, grouping=policy.grouping)


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


def _waiting(
    base: Explanation, pod: PendingPod, ledger: Ledger, nodes: Candidates, snapshot: Snapshot
) -> Explanation:
    verdicts = nodes.refusals(pod)
    refused = {name: verdict for name, verdict in verdicts.items() if verdict is not None}
    fits = tuple(sorted(verdicts.keys() - refused.keys()))
    found = msgspec.structs.replace(
        base,
        state=State.FITS if fits else State.WAITING,
        groups=tuple(grouped(refused, nodes.accounts)),
        fits=fits,
        helps=tuple(suggestions(pod, nodes, verdicts, grouping=base.policy.grouping)),
    )
    gang = gang_of(base.pod)
    if gang is None or not fits:
        return found
    members = _members(snapshot.pods, Member(base.pod, pod.demand), gang, ledger)
    rules = Rules(found.policy.name, found.policy.grouping)
    seats = seat(ledger, gang, pod.demand, frozenset(fits), rules, members=members, now_ns=0)
    return _with_gang(found, seats, ledger, rules)


def _never_scheduled(
    found: Explanation, pod: PendingPod, snapshot: Snapshot, ledger: Ledger
) -> Explanation:
    """What keeps every scheduler, or every scheduler of ours, away goes before the rest."""
    name = found.pod.scheduler_name
    unseen = schedulers_of(snapshot, ledger.names).misses(name)
    gates = pod.constraints.gates
    first = [*([gated(gates)] if gates else []), *([unseen] if unseen else [])]
    return msgspec.structs.replace(
        found,
        state=State.GATED if gates else found.state,
        gates=gates,
        helps=(*first, *found.helps),
    )


def gated(gates: Sequence[str]) -> str:
    """What scheduling gates do, and who can remove them."""
    names, one = ", ".join(gates), len(gates) == 1
    return (
        f"its scheduling gate{'' if one else 's'} {names} keep{'s' if one else ''} every scheduler "
        f"away from it: the controller that set the gate{'' if one else 's'} must remove "
        f"{'it' if one else 'them'}"
    )


def _members(pods: Iterable[Pod], asking: Member, gang: Gang, ledger: Ledger) -> Members:
    """The pods of a gang that exist."""
    named = (gang.namespace, gang.name)
    same = [pod for pod in pods if (its := gang_of(pod)) and (its.namespace, its.name) == named]
    members = [one for pod in same if (one := member_of(pod, ledger.names)) is not None]
    placed = [one.pod.uid for one in members if ledger.claim(one.pod.uid) is not None]
    return members_of(asking, members, placed)


def _with_gang(
    found: Explanation, answer: Seating | Shortage | Postponed, ledger: Ledger, rules: Rules
) -> Explanation:
    """A pod of a gang for which there is room alone: it waits until all can be placed."""
    words = tuple(gang_words(answer, ledger, rules))
    if not isinstance(answer, Seating):
        state = State.GANG_WAITS if isinstance(answer, Shortage) else State.GANG_INCOMPLETE
        return msgspec.structs.replace(found, state=state, helps=words)
    return msgspec.structs.replace(found, helps=(*found.helps, *words))


def grouped(
    refused: Mapping[NodeName, Refusal], accounts: Mapping[NodeName, NodeAccount]
) -> list[Group]:
    """Refusals by reason, most nodes first."""
    by_reason: dict[tuple[Code, str], list[Refusal]] = {}
    for refusal in refused.values():
        detail = refusal.detail if refusal.code in CONSTRAINT_CODES else ""
        by_reason.setdefault((refusal.code, detail), []).append(refusal)
    groups = [_group(code, alike, accounts) for (code, _), alike in by_reason.items()]
    return sorted(groups, key=lambda group: (-len(group.nodes), group.code, group.detail))


def _group(code: Code, alike: Iterable[Refusal], accounts: Mapping[NodeName, NodeAccount]) -> Group:
    refusals = sorted(alike, key=lambda refusal: (-_largest(refusal), refusal.node))
    nearest = refusals[0]
    return Group(
        code=code,
        reason=headline(nearest) if code is not Code.NOT_SHARED else _sentence_of(code),
        nodes=tuple(sorted(refusal.node for refusal in refusals)),
        largest=_largest(nearest),
        asked=_asked(nearest),
        measure=_measure(code, accounts[nearest.node]),
        example=sentence(nearest),
        remedy=CATALOGUE[code].remedy,
        detail=_detail(nearest),
    )


def _detail(refusal: Refusal) -> str:
    if refusal.code is Code.INSUFFICIENT_RESOURCES:
        return f"{refusal.detail}: {resource_words(refusal)}"
    return refusal.detail if refusal.code in CONSTRAINT_CODES else amount_hint(refusal)


_OF_COMPUTE: Final = frozenset({Code.INSUFFICIENT_CORE, Code.COMPUTE_TOO_LARGE})


def _asked(refusal: Refusal) -> int:
    """What is asked in the measure of the code: of compute, percent of a card."""
    if refusal.code not in _OF_COMPUTE:
        return refusal.asked
    return max((card.asked for card in refusal.cards if card.code is refusal.code), default=0)


def _sentence_of(code: Code) -> str:
    return CATALOGUE[code].sentence.rstrip(".")


def _largest(refusal: Refusal) -> int:
    """The most that one of its cards has free, or has at all; of whole cards, how many are free."""
    if refusal.code in CONSTRAINT_CODES:
        return 0
    if refusal.code in {Code.INSUFFICIENT_GPUS, Code.PENDING_UNITS}:
        return refusal.free
    cards = [card for card in refusal.cards if card.code is refusal.code]
    if refusal.code in {Code.TOO_LARGE, Code.COMPUTE_TOO_LARGE}:
        return max((card.total for card in cards), default=0)
    return max((card.free for card in cards), default=0)


def _measure(code: Code, account: NodeAccount) -> str:
    if code is Code.INSUFFICIENT_GPUS:
        return "cards"
    return "percent" if code in _OF_COMPUTE else str(unit_of(account))
