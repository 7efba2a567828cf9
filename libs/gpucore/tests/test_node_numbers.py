"""Sets of nodes that thousands of refused pods remember: small, exact, and without old nodes."""

from gpucore.scheduling.requeue import NodeNumbers
from gpucore.units import NodeName

A, B, C = (NodeName(name) for name in "abc")


def numbers_of(*nodes: NodeName) -> NodeNumbers:
    """Numbers of these nodes."""
    numbers = NodeNumbers()
    for node in nodes:
        numbers.add(node)
    return numbers


def test_a_set_has_the_nodes_that_were_given() -> None:
    """Other nodes are not in it, whether they exist or not."""
    numbers = numbers_of(A, B, C)
    found = numbers.set_of([C, A])
    assert [numbers.contains(found, node) for node in (A, B, C, NodeName("x"))] == [
        True,
        False,
        True,
        False,
    ]


def test_a_set_leaves_out_names_that_are_no_node() -> None:
    """They take no number, and a node of that name that comes later is not in the set."""
    numbers = numbers_of(A)
    found = numbers.set_of([B, A])
    numbers.add(B)
    assert [numbers.contains(found, node) for node in (A, B)] == [True, False]


def test_numbers_do_not_grow_while_nodes_come_and_go() -> None:
    """A new node takes the number of one that is gone, so a set has one byte for each node."""
    numbers = numbers_of(A, B)
    for number in range(1000):
        name = NodeName(f"n{number}")
        numbers.add(name)
        numbers.add(name)
        numbers.drop(name)
    numbers.drop(NodeName("x"))
    numbers.add(C)
    assert len(numbers.set_of([A, B, C])) == 3
    assert numbers.contains(numbers.set_of([C]), C)


def test_a_node_that_is_gone_is_in_no_set() -> None:
    """Although its number was."""
    numbers = numbers_of(A, B)
    found = numbers.set_of([A, B])
    numbers.drop(A)
    assert [numbers.contains(found, node) for node in (A, B)] == [False, True]
    assert not numbers.contains(numbers.set_of([]), B)
