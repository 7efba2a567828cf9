"""The ledger over random histories, and that a ledger with a bug does not get through."""

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test
from ledgermachine import LedgerMachine
from seededledgers import (
    AmnesicNode,
    DoubleCount,
    EagerRelist,
    EarlyRelease,
    FrozenShape,
    HastyDrop,
    LeakyForget,
    NameKeyed,
    OrphanNomination,
    StickyNomination,
    StuckClaim,
    Underflow,
)

from gpucore.accounting.ledger import Ledger

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]  # the work of many seconds

CHECK = settings(
    max_examples=120,
    stateful_step_count=40,
    deadline=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
)
HUNT = settings(
    CHECK, max_examples=800, stateful_step_count=60, phases=[Phase.generate], database=None
)


def test_any_history_gives_the_books_of_a_fresh_list() -> None:
    """Whatever happens in whatever order, books are sums and a restart changes nothing."""
    run_state_machine_as_test(LedgerMachine, settings=CHECK)


@pytest.mark.parametrize(
    "bug",
    [
        LeakyForget,
        HastyDrop,
        StuckClaim,
        DoubleCount,
        EarlyRelease,
        Underflow,
        FrozenShape,
        AmnesicNode,
        EagerRelist,
        NameKeyed,
        StickyNomination,
        OrphanNomination,
    ],
)
def test_a_seeded_bug_is_caught(bug: type[Ledger]) -> None:
    """The same checks fail on a ledger with one of the bugs of the originals."""
    with pytest.raises(AssertionError):
        run_state_machine_as_test(lambda: LedgerMachine(bug), settings=HUNT)
