"""Why a gang waits, or where its pods would go, as sentences with their figures."""

from collections.abc import Iterator

from gpucore.explain import cards_named
from gpucore.gang import Seating, Shortage
from gpucore.gangmembers import Postponed
from gpucore.gangplaces import Rules
from gpucore.ledger import Ledger
from gpucore.model import Claim
from gpucore.units import NodeName


def gang_words(
    answer: Seating | Shortage | Postponed, ledger: Ledger, rules: Rules
) -> Iterator[str]:
    """What :func:`gpucore.gang.seat` answered, the gang as a whole first, then node by node.

    Args:
        answer: to a question about ``ledger``, under ``rules``.
    """
    if isinstance(answer, Postponed):
        yield answer.sentence
        return
    if isinstance(answer, Shortage):
        yield answer.sentence
        yield from _short(answer, ledger, rules)
        return
    by_node: dict[NodeName, list[Claim]] = {}
    for one in answer.seats:
        by_node.setdefault(one.placement.node, []).append(one)
    for name, seats in by_node.items():
        yield f"{_members(len(seats))} of the gang would go to {name}: {_places(seats, ledger)}"


def _short(shortage: Shortage, ledger: Ledger, rules: Rules) -> Iterator[str]:
    gpus = shortage.demand.gpus
    for name, room in shortage.roomiest:
        account = ledger.nodes()[name]
        if not gpus:
            yield f"{name} has room for {_members(room)}"
            continue
        free = [index for index, card in account.cards.items() if card.open and card.empty]
        best = rules.grouping.whole(account, free, gpus, shortage.demand)
        score = account.shape.matrix.sum_of(best)
        words = f", the best {gpus} of them {cards_named(best)} (score {score})" if score else ""
        count = f"{len(free)} card{'' if len(free) == 1 else 's'}"
        yield f"{name} has {count} free, for {_members(room)}{words}"


def _places(seats: list[Claim], ledger: Ledger) -> str:
    groups = [one.placement.group for one in seats]
    if not all(groups):
        return "shares"
    matrix = ledger.nodes()[seats[0].placement.node].shape.matrix
    return "; ".join(f"{cards_named(group)} (score {matrix.sum_of(group)})" for group in groups)


def _members(count: int) -> str:
    return f"{count} member{'' if count == 1 else 's'}"
