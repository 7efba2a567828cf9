"""Every interleaving of a small cluster, with crashes and losses at every step.

Two scheduler replicas, an API server, kubelet and plugin, two nodes, three pods. The decisions are
the core's own. Each seeded bug must be found by the same search.
"""

import pytest
from modelsearch import Explored, ViolationError, explore
from modelstate import World
from modelsteps import Defects
from seededledgers import EarlyRelease, Gullible, HastyDrop, Premature, StuckClaim, Underflow

from gpucore.accounting.ledger import Ledger

pytestmark = pytest.mark.slow

REPLICAS = World(nodes={"a": (1,), "b": (1,)}, pods=(1, 1, 1), schedulers=2)
SWAPS = World(nodes={"a": (1, 1), "b": (1,)}, pods=(1, 1), schedulers=2)
SIZES = World(nodes={"a": (2, 2), "b": (2,)}, pods=(2, 1, 1), schedulers=1)
DELETES = World(nodes={"a": (1,), "b": (1,)}, pods=(1, 1, 1), schedulers=1, deletes=1)
SOLE_SWAPS = World(nodes={"a": (1, 1), "b": (1,)}, pods=(1, 1, 1), schedulers=1)


def test_two_replicas_never_over_commit_a_gpu() -> None:
    """Two replicas race for two GPUs with three pods: nodes stay whole, all ends well."""
    assert explore(REPLICAS) > Explored(states=10_000, steps=50_000, good=100)


def test_two_replicas_and_swapped_gpus() -> None:
    """Equal pods get each other's GPU: annotations follow the node, and all ends well."""
    assert explore(SWAPS) > Explored(states=5_000, steps=20_000, good=500)


@pytest.mark.parametrize("world", [SIZES, DELETES, SOLE_SWAPS])
def test_a_sole_scheduler_never_plans_what_a_node_refuses(world: World) -> None:
    """With one scheduler no plan exceeds its node and no planned pod is ever refused."""
    assert explore(world, sole=True).good > 0


def test_a_bind_of_unknown_outcome_keeps_its_reservation() -> None:
    """Were the reservation dropped when the reply is lost, a node would be planned too full."""
    with pytest.raises(ViolationError, match="more than node"):
        explore(DELETES, defects=Defects(drops_unknown=True), sole=True)


@pytest.mark.parametrize(
    ("bug", "world", "words"),
    [
        (HastyDrop, DELETES, "more than node|counts"),
        (EarlyRelease, DELETES, "more than node|counts"),
        (StuckClaim, SOLE_SWAPS, "counts"),
        (Gullible, SOLE_SWAPS, "more than node|refused"),
        (Premature, SOLE_SWAPS, "more than node|refused"),
    ],
)
def test_a_bug_of_the_ledger_is_found(bug: type[Ledger], world: World, words: str) -> None:
    """Each bug that loses or misplaces an allocation leads to a plan that cannot be kept."""
    with pytest.raises(ViolationError, match=words):
        explore(world, bug, sole=True)


def test_unsigned_free_is_found() -> None:
    """Were free to wrap below zero, a full GPU would be offered without end."""
    with pytest.raises(ViolationError):
        explore(SOLE_SWAPS, Underflow, sole=True)


def test_without_the_arbiter_gpus_are_over_committed() -> None:
    """The plugin's look at what kubelet has handed out is what keeps two replicas apart."""
    with pytest.raises(ViolationError, match="over-committed"):
        explore(REPLICAS, defects=Defects(no_arbiter=True))


def test_without_reconcile_node_and_annotation_never_agree() -> None:
    """Somebody must write the truth back."""
    with pytest.raises(ViolationError, match="never well again"):
        explore(SWAPS, defects=Defects(no_reconcile=True))
