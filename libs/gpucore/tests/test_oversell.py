"""All services read the label that oversells memory alike."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpucore.accounting.node_infos import capacity_of
from gpucore.units import NodeName
from gpucore.wire.names import LABEL_OVERSELL, Names
from gpucore.wire.node.spec import MOST_OVERSELL, Node, oversell_fault, oversell_of

FAULT = f"label {LABEL_OVERSELL} is not a number from 1 to 16"


@pytest.mark.parametrize(
    ("text", "ratio", "fault"),
    [
        ("1", 1, ""),
        ("2", 2, ""),
        ("016", 16, ""),
        ("17", 16, FAULT),
        ("1023", 16, FAULT),
        ("1024", 16, FAULT),
        ("65536", 16, FAULT),
        *((text, 1, FAULT) for text in ("", "0", "00", "-1", "1.5", "2x", " 2", "٢", "true")),
        ("9" * 63, 1, FAULT),
    ],
)
def test_the_ledger_counts_the_ratio_that_the_node_offers(
    text: str, ratio: int, fault: str
) -> None:
    """A ratio above 16 counts as 16, a text that is no ratio as 1, and both are reported."""
    labels = {LABEL_OVERSELL: text}
    shape = capacity_of(Node(NodeName("n"), labels=labels), Names(), frozenset())
    assert (oversell_of(labels), oversell_fault(labels)) == (ratio, fault)
    assert (shape.oversell, "".join(shape.faults)) == (ratio, fault)


def test_a_node_without_the_label_offers_its_memory_once() -> None:
    """And nothing is reported."""
    assert (oversell_of({}), oversell_fault({})) == (1, "")


@given(st.text())
def test_any_text_is_a_ratio_that_a_node_can_offer(text: str) -> None:
    """Whatever somebody wrote there."""
    assert 1 <= oversell_of({LABEL_OVERSELL: text}) <= MOST_OVERSELL
