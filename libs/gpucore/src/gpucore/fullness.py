"""How full the cards of a node are: what binpack and spread rate nodes by, said once.

In plain figures, so that a caller who keeps them by the thousand rates as the policies do.
"""


def part_in_use(total: int, used: int, core: float) -> float:
    """Part of a card that is in use, 0 to 1: of its memory or its compute, whichever is more.

    Args:
        total: units of memory; 0 where it has none to give.
        used: units held.
        core: part of its compute that is held; 1 where it is taken whole.
    """
    return min(max(used / total if total else 0.0, core), 1.0)


def rating(in_use: float, cards: int, *, spread: bool) -> float:
    """How good a node is, 0 to 1, by the parts in use of all its cards together.

    Args:
        in_use: sum of the parts.
        cards: how many cards there are; at least one.
        spread: the emptier the better; otherwise the fuller.
    """
    full = in_use / cards
    return 1.0 - full if spread else full
