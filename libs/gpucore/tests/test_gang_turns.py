"""Refused gangs are planned in turn, so that none keeps another from its plan."""

from hypothesis import given
from hypothesis import strategies as st

from gpucore.gang.pod_groups import Key
from gpucore.gang.turns import GangTurns

A, B, C = (("tenant", name) for name in "abc")
OTHER = ("other", "x")
KEYS = [(namespace, name) for namespace in ("n1", "n2", "n3") for name in ("a", "b", "c")]


def turns_of(*gangs: Key) -> GangTurns:
    """The turns of these gangs."""
    turns = GangTurns()
    turns.keep(gangs)
    return turns


def taken(turns: GangTurns, count: int, *gangs: Key) -> list[Key | None]:
    """The gangs that get the next turns."""
    return [turns.take(gangs) for _ in range(count)]


def test_the_gangs_of_a_namespace_are_taken_in_turn() -> None:
    """The first turns go by the order in which the gangs were given."""
    turns = turns_of(B, A, C)
    assert taken(turns, 5, A, B, C) == [B, A, C, B, A]


def test_a_namespace_of_many_gangs_gets_as_many_turns_as_one_of_a_single_gang() -> None:
    """A tenant that creates gangs without end delays itself."""
    turns = turns_of(A, B, C, OTHER)
    assert taken(turns, 6, A, B, C, OTHER) == [A, OTHER, B, OTHER, C, OTHER]


def test_a_gang_that_cannot_fit_now_keeps_its_turn() -> None:
    """It is taken before others once it may fit."""
    turns = turns_of(A, B)
    assert taken(turns, 2, B) == [B, B]
    assert taken(turns, 1, A, B) == [A]


def test_a_gang_that_is_created_again_comes_last() -> None:
    """So does its namespace, where that had no other gang."""
    turns = turns_of(A, B, OTHER)
    turns.keep([B, OTHER])
    turns.keep([A, B, OTHER])
    assert taken(turns, 3, A, B, OTHER) == [B, OTHER, A]
    turns.keep([A, B])
    turns.keep([OTHER, A, B])
    assert taken(turns, 1, A, OTHER) == [A]


def test_without_a_gang_nobody_has_a_turn() -> None:
    """Nor has one that does not wait."""
    assert GangTurns().take([A]) is None
    assert turns_of(A).take([B]) is None
    assert turns_of(A).take([]) is None


@given(st.lists(st.sets(st.sampled_from(KEYS)), min_size=4, max_size=9))
def test_a_gang_waits_for_one_gang_of_each_other_namespace_at_most(
    looks: list[set[Key]],
) -> None:
    """Whatever gangs of others come, go and come again between the plans."""
    mine = ("mine", "gang")
    turns = turns_of(mine, *KEYS)
    turns.take([mine])
    plans = list[Key | None]()
    for others in looks:
        turns.keep([*others, mine])
        plans.append(turns.take([*others, mine]))
    assert mine in plans[:4]
