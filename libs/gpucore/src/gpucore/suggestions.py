"""What would make room for a pod that waits: the smallest steps, as sentences.

Suggestions only; nothing is moved or deleted. A sentence that promises room was tried on a copy of
the cluster; where nothing is certain the catalogue's remedy for the reason is given instead.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import msgspec

from gpucore.account import NodeAccount
from gpucore.cardfit import per_card
from gpucore.endings import Step, for_gpus, for_share, smallest
from gpucore.explain import (
    CATALOGUE,
    CONSTRAINT_CODES,
    amount_hint,
    cards_named,
    resource_words,
    unit_of,
)
from gpucore.fit import fit
from gpucore.grouping import BY_LINKS, Grouping
from gpucore.model import Ask, Code, Demand, Refusal, Rung
from gpucore.scheduling.candidates import Candidates, PendingPod
from gpucore.units import NodeName

NAMED: Final = 3
"""Pods or nodes that sentences name; the others are counted or left out."""

_UNOFFERED: Final = frozenset({Code.NOT_SHARED, Code.NODE_UNKNOWN})
Refusals = Mapping[NodeName, Refusal | None]


def suggestions(
    pod: PendingPod,
    cluster: Candidates,
    refusals: Refusals,
    *,
    grouping: Grouping = BY_LINKS,
) -> Iterator[str]:
    """Sentences, the smallest step first.

    Args:
        pod: the pod that waits.
        cluster: the nodes.
        refusals: why each node does not admit the pod, ``None`` where it does.
        grouping: how the cluster chooses several GPUs.
    """
    if pod.demand.fault:
        yield f"correct the pod: {pod.demand.fault}"
        return
    fits = sorted(name for name, refusal in refusals.items() if refusal is None)
    if fits:
        yield _fits(pod, cluster.accounts[fits[0]], grouping)
        return
    found = [*_blocked(pod, cluster, refusals), *_room(pod, cluster, refusals, grouping)]
    yield from found or _remedies(refusals)


def _fits(pod: PendingPod, account: NodeAccount, grouping: Grouping) -> str:
    demand = pod.demand
    if pod.constraints.unsupported:
        return (
            f"{account.name} has enough {_what(demand)}; not evaluated here: "
            f"{', '.join(pod.constraints.unsupported)} "
            "(the scheduler's message names what blocks the pod)"
        )
    where = f", on {_best(account, demand.gpus, demand, grouping)}" if demand.gpus else ""
    return f"{account.name} can take it now{where}"


def _what(demand: Demand) -> str:
    return "GPUs" if demand.gpus else "GPU memory"


def _blocked(pod: PendingPod, cluster: Candidates, refusals: Refusals) -> Iterator[str]:
    """Nodes with room that the scheduler's own rules exclude; one for each different reason."""
    reasons: dict[str, tuple[int, NodeName]] = {}
    for name, refusal in refusals.items():
        if refusal is None or refusal.code not in CONSTRAINT_CODES:
            continue
        if fit(cluster.accounts[name], pod.demand) is None:
            blockers = list(cluster.blockers(name, pod))
            place = (len(blockers), name)
            words = _excluded(pod.demand, blockers)
            reasons[words] = min(reasons.get(words, place), place)
    for words, (_, name) in sorted(reasons.items(), key=lambda pair: pair[1])[:NAMED]:
        yield f"{name} {words}"


def _excluded(demand: Demand, blockers: Sequence[Refusal]) -> str:
    if {refusal.code for refusal in blockers} == {Code.NODE_UNSCHEDULABLE}:
        return "has room for it, but takes no new pods: uncordon it or make it ready"
    words = " and ".join(map(_blocker, blockers))
    return f"has enough {_what(demand)}; the pod is blocked by {words}"


def _blocker(refusal: Refusal) -> str:
    if refusal.code is Code.INSUFFICIENT_RESOURCES:
        return f"insufficient {refusal.detail} ({resource_words(refusal)})"
    its = "its " if refusal.code is Code.NODE_AFFINITY else ""
    return f"{its}{refusal.detail}"


def _room(
    pod: PendingPod, cluster: Candidates, refusals: Refusals, grouping: Grouping
) -> Iterator[str]:
    """What GPUs of the nodes that the pod may use could become, and what of them is free."""
    accounts = {name: cluster.accounts[name] for name in refusals if _usable(pod, cluster, name)}
    if pod.demand.mem and not pod.demand.gpus:
        yield from _for_share(pod, cluster, accounts, refusals)
    if pod.demand.gpus:
        everywhere = len(accounts) == len(refusals)
        yield from _for_gpus(pod, cluster, accounts, everywhere=everywhere)
        yield from _fewer(pod, cluster, accounts, grouping)
    shapes = [account.shape for account in cluster.accounts.values()]
    if not any(s.offers_cards if pod.demand.gpus else s.offers_shares for s in shapes):
        kind = "whole cards" if pod.demand.gpus else "shares"
        yield f"no node offers {kind}: label one and see that the device plugin runs there"


def _usable(pod: PendingPod, cluster: Candidates, name: NodeName) -> bool:
    """Nothing but resources that other pods hold keeps the pod off this node."""
    curable = {Code.INSUFFICIENT_RESOURCES}
    return all(
        refusal.code in curable and not refusal.unresolvable
        for refusal in cluster.blockers(name, pod)
    )


def _for_share(
    pod: PendingPod,
    cluster: Candidates,
    accounts: Mapping[NodeName, NodeAccount],
    refusals: Refusals,
) -> Iterator[str]:
    demand = pod.demand
    yield from _too_large(demand, accounts, refusals)
    steps = (step for account in accounts.values() for step in for_share(account, demand))
    step = smallest(steps, pod, cluster)
    if step is not None:
        unit = unit_of(accounts[step.node])
        pods = " and ".join(_pods(step, accounts[step.node]))
        yield f"it fits card {step.card} of {step.node} once {pods} ends ({step.units} {unit})"
    yield from _smaller_share(pod, cluster, accounts)


def _too_large(
    demand: Demand, accounts: Mapping[NodeName, NodeAccount], refusals: Refusals
) -> Iterator[str]:
    """No GPU has that much memory: the unit is wrong, or several GPUs are needed."""
    mem = per_card(demand)[0]
    largest = max((account.shape.largest_card for account in accounts.values()), default=0)
    if not 0 < largest < mem:
        return
    found = (refusals[name] for name in accounts)
    hints = (amount_hint(r) for r in found if r is not None and r.code is Code.TOO_LARGE)
    hint = next((hint for hint in hints if hint), "")
    spread = ", or spread the pod over GPUs with the label gpu-count"
    most = max(_capacity(account) for account in accounts.values())
    possible = not hint and demand.rung is Rung.NONE and mem <= largest * most
    yield f"no GPU is that large: check the unit (GiB or MiB){spread if possible else hint}"


def _smaller_share(
    pod: PendingPod, cluster: Candidates, accounts: Mapping[NodeName, NodeAccount]
) -> Iterator[str]:
    """The largest share that would be admitted at once, where less is free than requested."""
    roomy = sorted(accounts.values(), key=lambda each: (-each.share_room, each.name))
    for account in roomy[:NAMED]:
        room = account.share_room
        if not 0 < room < per_card(pod.demand)[0]:
            return
        less = msgspec.structs.replace(pod.demand, mem=room, containers=(Ask(mem=room),), cards=1)
        if cluster.refusal(account.name, PendingPod(less, pod.constraints)) is None:
            yield f"a share of {room} {unit_of(account)} fits now, on {account.name}"
            return


def _for_gpus(
    pod: PendingPod,
    cluster: Candidates,
    accounts: Mapping[NodeName, NodeAccount],
    *,
    everywhere: bool,
) -> Iterator[str]:
    wanted = pod.demand.gpus
    offering = [account for account in accounts.values() if account.shape.offers_cards]
    large = [account for account in offering if _capacity(account) >= wanted]
    steps = (step for account in large for step in for_gpus(account, wanted))
    step = smallest(steps, pod, cluster)
    if step is not None:
        names = _pods(step, accounts[step.node])
        more = f" and {step.pods - NAMED} more" if step.pods > NAMED else ""
        ends = "ends" if step.pods == 1 else "end"
        yield f"it fits {step.node} once {', '.join(names[:NAMED])}{more} {ends}"
    if offering and not large:
        yield _too_many(wanted, offering, everywhere=everywhere)
    elif large:
        yield from _short_of(wanted, max(large, key=lambda each: each.whole_room))


def _too_many(wanted: int, offering: Sequence[NodeAccount], *, everywhere: bool) -> str:
    roomy = max(offering, key=_capacity)
    most = _capacity(roomy)
    where = "no node" if everywhere else "no node that the pod may use"
    least = f"; {roomy.name} has the most, {most}: request at most {most}" if most else ""
    return f"{where} has {wanted} healthy GPUs{least}"


def _short_of(wanted: int, roomy: NodeAccount) -> Iterator[str]:
    missing = wanted - roomy.whole_room
    if missing > 0:
        short = f"{roomy.name} is {missing} free card{'s' if missing > 1 else ''} short"
        yield f"{short}; 'gpushare defrag --cards {wanted}' looks for pods to move"


def _fewer(
    pod: PendingPod,
    cluster: Candidates,
    accounts: Mapping[NodeName, NodeAccount],
    grouping: Grouping,
) -> Iterator[str]:
    """The most GPUs that are free at once, where they are fewer than requested."""
    roomy = max(accounts.values(), key=lambda each: each.whole_room, default=None)
    if roomy is None or not 0 < roomy.whole_room < pod.demand.gpus:
        return
    less = msgspec.structs.replace(
        pod.demand, gpus=roomy.whole_room, containers=(Ask(gpus=roomy.whole_room),)
    )
    if cluster.refusal(roomy.name, PendingPod(less, pod.constraints)) is None:
        best = _best(roomy, roomy.whole_room, less, grouping)
        yield f"{best} can be had now, on {roomy.name}"


def _capacity(account: NodeAccount) -> int:
    """GPUs that could all be free one day."""
    return sum(card.healthy and card.gpu is not None for card in account.cards.values())


def _pods(step: Step, account: NodeAccount) -> list[str]:
    claims = (account.claims[uid] for uid in step.uids)
    return [f"{claim.namespace}/{claim.name}" for claim in claims]


def _remedies(refusals: Refusals) -> Iterator[str]:
    """What the catalogue says of the reasons, those of most nodes first."""
    codes = Counter(refusal.code for refusal in refusals.values() if refusal is not None)
    for code, _ in codes.most_common():
        if code not in _UNOFFERED or len(codes) == 1:
            yield CATALOGUE[code].remedy


def _best(account: NodeAccount, count: int, demand: Demand, grouping: Grouping) -> str:
    """The best group that is free, and its score where links are known."""
    free = [index for index, card in account.cards.items() if card.open and card.empty]
    group = grouping.whole(account, free, count, demand)
    score = account.shape.matrix.sum_of(group)
    return f"{cards_named(group)} (score {score})" if score else cards_named(group)
