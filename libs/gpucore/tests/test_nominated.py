"""Pods that are nominated for a node come before others of their priority or a lower one."""

from collections.abc import Sequence

from corebuilders import cards, demand, ledger, pod, share_node
from hypothesis import given, settings
from hypothesis import strategies as st

from gpucore.account import NodeAccount
from gpucore.fit import fit
from gpucore.model import Claim, ClaimState, Refusal
from gpucore.nominated import NominatedPod, before, refusal_beside
from gpucore.policy import place
from gpucore.units import NodeName, PodUid


def nominee(name: str, mem: int, priority: int = 0) -> NominatedPod:
    """A nominated pod."""
    return NominatedPod(PodUid(name), name, demand(pod(name, mem)), priority)


def node(*held: int) -> NodeAccount:
    """A node with two GPUs of 16 units, with pods on them one after the other."""
    account = ledger(share_node("n", cards(16, 16))).node(NodeName("n"))
    assert account is not None
    books = account.copy()
    for number, mem in enumerate(held):
        found = place(books, demand(pod(f"h{number}", mem)))
        if not isinstance(found, Refusal):
            books.put(Claim(PodUid(f"h{number}"), "", "", ClaimState.BOUND, found))
    return books


def test_a_pod_gives_way_to_its_own_priority_and_higher_ones() -> None:
    """It never gives way to itself."""
    pods = [nominee("low", 1, 1), nominee("same", 1, 5), nominee("high", 1, 9)]
    found = before([*pods, nominee("me", 1, 5)], PodUid("me"), 5)
    assert [one.name for one in found] == ["same", "high"]


@settings(max_examples=200, deadline=None)
@given(
    held=st.lists(st.integers(1, 16), max_size=4),
    nominated=st.lists(st.integers(1, 16), max_size=3),
    mem=st.integers(1, 16),
)
def test_what_is_given_never_takes_the_room_of_a_nominated_pod(
    held: Sequence[int], nominated: Sequence[int], mem: int
) -> None:
    """If all nominated pods fit now, they still do after the other pod was placed."""
    account, asks = node(*held), demand(pod("p", mem))
    pods = [nominee(f"n{number}", amount) for number, amount in enumerate(nominated)]
    refusal = refusal_beside(account, asks, pods)
    if fit(account, asks) is not None:
        assert refusal is not None
    books = account.copy()
    for one in pods:
        found = place(books, one.demand)
        if isinstance(found, Refusal):
            return  # nothing is promised before the victims have ended
        books.put(Claim(one.uid, "", "", ClaimState.RESERVED, found))
    assert (refusal is None) == (fit(books, asks) is None)
