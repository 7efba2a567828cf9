"""Sets of node names are kept in little memory, and are the same sets again."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpucore.gang import node_sets
from gpucore.gang.node_sets import NodeSets
from gpucore.units import NodeName

NAMES = st.frozensets(st.integers(0, 30).map(lambda number: NodeName(f"n{number}")))


@given(st.lists(NAMES, max_size=8))
def test_a_set_has_the_names_that_it_was_made_of(wanted: list[frozenset[NodeName]]) -> None:
    """Also when later sets add names to the table; equal sets have equal keys."""
    sets = NodeSets()
    found = [sets.of(names) for names in wanted]
    assert [one.names() for one in found] == wanted
    assert [sets.of(names).key for names in wanted] == [one.key for one in found]
    assert len({one.key for one in found}) == len(set(wanted))


def test_names_of_nodes_that_are_gone_are_dropped_in_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Another table begins; sets of the old one stay what they are."""
    monkeypatch.setattr(node_sets, "MOST_NAMES", 3)
    sets = NodeSets()
    names = [frozenset({NodeName(f"n{number}"), NodeName("all")}) for number in range(4)]
    found = [sets.of(each) for each in names]
    assert [one.names() for one in found] == names
    assert [len(one.table) for one in found] == [3, 3, 3, 3]
    assert found[0].table is found[1].table is not found[2].table
