"""Decisions for all amounts at once are those for each amount, whatever the node holds."""

from math import floor

import pytest
from corebuilders import ledger, make_gpus, pod, share_node
from hypothesis import given
from hypothesis import strategies as st

from gpucore.accounting.node_info import NodeInfo
from gpucore.explain.sentences import sentence
from gpucore.explain.shares import share_sentence
from gpucore.model import Code, ContainerRequest, Placement, PodRequest
from gpucore.scheduling.fit import fit
from gpucore.scheduling.plain_shares import (
    MAX_AMOUNT,
    NO_RATINGS,
    UNFIT,
    UNRATED,
    is_plain_share,
    ratings_for,
    share_ratings,
    share_scores,
)
from gpucore.scheduling.policy import POLICIES, place, score
from gpucore.units import GpuIndex, NodeName
from gpucore.wire import names as wire_names

HOLDERS = st.lists(
    st.tuples(st.integers(0, 3), st.integers(1, 16), st.sampled_from((0, 0, 30))), max_size=8
)
SHARE = PodRequest((ContainerRequest(1),), mem=1)


def account_of(
    units: list[int],
    holders: list[tuple[int, int, int]] | None = None,
    unhealthy: int = 9,
    *,
    label: str = "",
    max_pods: int = 0,
) -> NodeInfo:
    """The account of a node with these GPUs and these pods (GPU, units, percent).

    GPU -1 is one that nobody knows.
    """
    labels = {wire_names.LABEL_PLACEMENT: label} if label else {}
    if max_pods:
        labels[wire_names.LABEL_MAX_POD] = str(max_pods)
    book = ledger(share_node("n", make_gpus(*units), labels=labels))
    book.unhealthy_changed(NodeName("n"), frozenset({GpuIndex(unhealthy)}))
    for number, (gpu, amount, core) in enumerate(holders or ()):
        annotations = (
            {}
            if gpu < 0
            else {
                "ALIYUN_COM_GPU_MEM_IDX": str(gpu % len(units)),
                "ALIYUN_COM_GPU_MEM_POD": str(amount),
                "ALIYUN_COM_GPU_MEM_ASSIGNED": "true",
                "ALIYUN_COM_GPU_MEM_ASSUME_TIME": "1",
            }
        )
        book.pod_changed(
            pod(
                f"p{number}",
                amount,
                core=core,
                node="n",
                phase="Running",
                annotations=annotations,
            )
        )
    node_info = book.node(NodeName("n"))
    assert node_info is not None
    return node_info


def exact(node_info: NodeInfo, pod_request: PodRequest, policy: str) -> float | None:
    """The core's rating before it is rounded; ``None`` where it places nothing."""
    placement = place(node_info, pod_request, policy)
    if not isinstance(placement, Placement):
        return None
    return 10 * POLICIES[policy].rate(node_info, pod_request, placement)[0]


@given(
    units=st.lists(st.integers(1, 16), min_size=1, max_size=4),
    holders=HOLDERS,
    unhealthy=st.integers(0, 8),
    policy=st.sampled_from(("binpack", "spread")),
)
def test_scores_by_amount_are_those_of_the_policy(
    units: list[int], holders: list[tuple[int, int, int]], unhealthy: int, policy: str
) -> None:
    """Every amount up to the largest GPU scores the same, but for the rounding of exact halves."""
    node_info = account_of(units, holders, unhealthy)
    scores = share_scores(share_ratings(node_info, SHARE, policy))
    assert len(scores) == max(units) + 1
    for amount in range(1, len(scores)):
        pod_request = PodRequest((ContainerRequest(amount),), mem=amount)
        rating = exact(node_info, pod_request, policy)
        if rating is not None and abs(rating - floor(rating) - 0.5) < 1e-9:
            assert scores[amount] in {floor(rating), floor(rating) + 1}
        else:
            assert scores[amount] == score(node_info, pod_request, policy)


@pytest.mark.parametrize(
    ("own", "label", "default"),
    [("spread", "binpack", "binpack"), ("", "spread", "binpack"), ("", "", "spread")],
)
def test_the_policy_of_the_pod_precedes_that_of_the_node(
    own: str, label: str, default: str
) -> None:
    """Then the node's label counts, then the default."""
    node_info = account_of([8, 8], [(0, 4, 0)], label=label)
    pod_request = PodRequest((ContainerRequest(2),), mem=2, policy=own)
    ratings = share_ratings(node_info, pod_request, default)
    assert (
        share_scores(ratings)[2]
        == score(node_info, pod_request, default)
        == score(node_info, pod_request, "spread")
    )


def test_nodes_in_the_same_state_share_one_row() -> None:
    """A filter then reads few rows for thousands of nodes, and a row is computed once."""
    held = [(0, 4, 0)]
    one, same = account_of([8, 8], held), account_of([8, 8], held)
    fuller = account_of([8, 8], [(0, 5, 0)])
    assert share_ratings(one, SHARE, "binpack") is share_ratings(same, SHARE, "binpack")
    assert share_ratings(one, SHARE, "binpack") != share_ratings(fuller, SHARE, "binpack")
    assert share_ratings(one, SHARE, "binpack") != share_ratings(one, SHARE, "spread")


def test_only_plain_shares_have_scores_by_amount() -> None:
    """Compute, full GPUs and shares of several GPUs need the whole request."""
    ask = (ContainerRequest(4),)
    assert is_plain_share(PodRequest(ask, mem=4))
    assert not is_plain_share(PodRequest(ask, mem=4, core=10))
    assert not is_plain_share(PodRequest(ask, mem=4, gpu_count=2))
    assert not is_plain_share(PodRequest(ask, mem=4, whole_device=True))
    assert not is_plain_share(PodRequest((ContainerRequest(gpus=1),), gpus=1))


def test_fragmentation_and_small_units_have_no_scores_by_amount() -> None:
    """The formula does not hold for the first, and the second has too many amounts."""
    assert share_ratings(account_of([15]), SHARE, "fragmentation") is NO_RATINGS
    assert share_ratings(account_of([MAX_AMOUNT + 1]), SHARE, "binpack") is NO_RATINGS
    assert share_ratings(account_of([MAX_AMOUNT]), SHARE, "binpack")[MAX_AMOUNT] == 1.0


def test_an_amount_has_a_rating_on_every_node() -> None:
    """Also one that is larger than any GPU with ratings."""
    nodes = [share_ratings(account_of([units]), SHARE, "binpack") for units in (8, MAX_AMOUNT + 1)]
    assert ratings_for(4, nodes) == [0.5, UNRATED]
    assert ratings_for(9, nodes) == [UNFIT, UNRATED]
    assert ratings_for(MAX_AMOUNT + 1, nodes) == [UNFIT, UNRATED]


@given(
    units=st.lists(st.integers(1, 16), min_size=1, max_size=4),
    holders=st.lists(st.tuples(st.integers(-1, 3), st.integers(1, 16), st.just(0)), max_size=8),
    unhealthy=st.integers(0, 8),
    max_pods=st.sampled_from((0, 0, 2)),
)
def test_the_reason_for_every_amount_is_that_of_the_core(
    units: list[int], holders: list[tuple[int, int, int]], unhealthy: int, max_pods: int
) -> None:
    """Where an amount has a sentence, the core refuses the amount with that sentence."""
    node_info = account_of(units, holders, unhealthy, max_pods=max_pods)
    reason = share_sentence(node_info)
    for amount in range(1, max(units) + 3):
        expected = fit(node_info, PodRequest((ContainerRequest(amount),), mem=amount))
        text = reason.of(amount) if reason else ""
        if text:
            assert expected is not None
            assert text == sentence(expected)
            assert (expected.code, expected.unresolvable) == (Code.INSUFFICIENT_MEMORY, False)


def test_a_full_node_has_one_reason_for_all_amounts() -> None:
    """The common case is covered: every amount up to the size of the smallest GPU."""
    reason = share_sentence(account_of([8, 16], [(0, 8, 0), (1, 16, 0)]))
    assert reason is not None
    assert (reason.least, reason.most) == (1, 8)
    assert "GPU 0 has 0 of 8 free" in reason.of(3)
    assert reason.of(9) == ""


def test_a_node_without_one_reason_for_all_amounts() -> None:
    """One that takes every amount, has no GPUs, or keeps memory for a pod on an unknown GPU."""
    assert share_sentence(account_of([8])) is None
    assert share_sentence(account_of([])) is None
    assert share_sentence(account_of([8, 8], [(-1, 4, 0)])) is None
