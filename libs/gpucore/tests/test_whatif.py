"""What would happen if these pods came now."""

from corebuilders import NAMES, cards, demand, ledger, legacy_node, pod, share_node

from gpucore.model import Code
from gpucore.units import NodeName
from gpucore.whatif import Wish, what_if
from gpucore.wire import names as wire_names


def wishes(*amounts: int) -> list[Wish]:
    """Wishes of so many units."""
    return [Wish(f"w{i}", demand(pod(f"w{i}", units))) for i, units in enumerate(amounts)]


def test_wishes_are_placed_one_after_the_other() -> None:
    """Each takes what is left by those before it; the last fits nowhere and says why."""
    book = ledger(legacy_node("a", 15, 1), legacy_node("b", 15, 1))
    answer = what_if(book.nodes(), wishes(8, 8, 7, 8))
    homes = [o.placement.node if o.placement else None for o in answer.outcomes]
    assert homes == ["a", "b", "a", None]
    assert {n: r.code for n, r in answer.outcomes[3].refusals.items()} == {
        "a": Code.INSUFFICIENT_MEMORY,
        "b": Code.INSUFFICIENT_MEMORY,
    }
    assert [account.used_units for account in answer.accounts.values()] == [15, 8]


def test_the_books_stay_as_they_are() -> None:
    """Asking changes nothing, whatever the answer."""
    book = ledger(legacy_node("a", 15, 1))
    what_if(book.nodes(), wishes(8, 3))
    account = book.node(NodeName("a"))
    assert account is not None
    assert not account.claims
    assert account.share_room == 15


def test_the_policy_chooses_the_node() -> None:
    """Binpack fills a node that is used, spread the one that is not."""
    used = pod("p", 3, node="b", annotations={NAMES.mem_idx: "0"})
    book = ledger(legacy_node("a", 15, 1), legacy_node("b", 15, 1), used)
    for policy, node in (("binpack", "b"), ("spread", "a")):
        outcome = what_if(book.nodes(), wishes(4), policy).outcomes[0]
        assert outcome.placement is not None
        assert outcome.placement.node == node


def test_exclusive_wishes_keep_their_card() -> None:
    """A wish for a whole device keeps later wishes off its card."""
    labels = {wire_names.LABEL_REQUIRE_WHOLE: wire_names.REQUIRE_WHOLE_DEVICE}
    book = ledger(share_node("n", cards(15)))
    alone = Wish("alone", demand(pod("alone", 1, labels=labels)))
    first, second = what_if(book.nodes(), [alone, *wishes(1)]).outcomes
    assert first.placement is not None
    assert second.placement is None


def test_nothing_wished_nothing_changed() -> None:
    """No wishes, or no nodes, are questions too."""
    book = ledger(legacy_node("a", 15, 1))
    assert what_if(book.nodes(), []).outcomes == ()
    lonely = what_if({}, wishes(1)).outcomes[0]
    assert (lonely.placement, dict(lonely.refusals)) == (None, {})
