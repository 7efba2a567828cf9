"""What links are worth, and how reports from two ends become one symmetric matrix."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpucore.model import Gpu, Inventory
from gpucore.model.links import MAX_SCORE, PCIE, WORTH, Matrix, merge, score_of
from gpucore.testing.machines import DGX1_VOLTA, DGX2
from gpucore.units import GpuIndex, GpuUuid
from gpucore.wire.node.matrices import matrix_of

FOUR = tuple(map(GpuIndex, range(4)))
names = st.sampled_from([*WORTH, "N-A", "NV0", "NV1000", "PIXX", "", "nv2", "NV٣"])


def test_nearer_paths_and_more_nvlinks_score_more() -> None:
    """PCIe classes score 10 to 60, each NVLink 100, and a pair has the sum of both."""
    assert [score_of([name]) for name in ("SYS", "NODE", "PHB", "PXB", "PIX", "PSB")] == [
        *range(10, 61, 10)
    ]
    counts = [score_of([f"NV{count}"]) for count in range(1, 37)]
    assert counts == list(range(100, 3601, 100))
    assert score_of(["NV2", "PHB"]) == 230


@pytest.mark.parametrize("name", ["N-A", "NV0", "NV036", "NV1000", "NV", "PIXX", "", "nv2", "NV٣"])
def test_what_is_no_link_scores_nothing(name: str) -> None:
    """Unknown and absurd names are worth 0 rather than an error."""
    assert score_of([name]) == 0


def test_no_report_makes_a_pair_worth_more_than_can_be() -> None:
    """Ten times 18 NVLinks are still one pair's most, and so is any larger number."""
    assert score_of(["NV18"] * 10) == MAX_SCORE == 7260
    assert score_of(["NV999", "PSB"]) == MAX_SCORE


@given(
    st.lists(
        st.tuples(st.tuples(st.integers(-1, 5), st.integers(-1, 5)), st.lists(names, max_size=3)),
        max_size=12,
    )
)
def test_a_matrix_is_symmetric_whatever_is_reported(
    reports: list[tuple[tuple[int, int], list[str]]],
) -> None:
    """Any reports give a symmetric matrix of this machine's GPUs, empty on the diagonal."""
    matrix = merge(FOUR, reports)
    scores = matrix.scores
    assert all(scores[a][b] == scores[b][a] for a in FOUR for b in FOUR)
    assert all(scores[a][a] == 0 for a in FOUR)
    assert all(set(names) <= set(WORTH) for names in matrix.links.values())


def test_the_weaker_end_counts_and_is_reported() -> None:
    """Where one end sees two NVLinks and the other a failed one, the failed one counts."""
    matrix = merge(FOUR, [((0, 1), ["NV2", "PIX"]), ((1, 0), ["NV1", "PIX"])])
    assert matrix.between(1, 0) == ("NV1", "PIX")
    assert matrix.notes == ("0-1: the ends report NV1+PIX and NV2+PIX, the weaker counts",)


def test_ends_that_agree_need_no_note() -> None:
    """The same links in another order are the same report."""
    matrix = merge(FOUR, [((0, 1), ["NV2", "PIX"]), ((1, 0), ["PIX", "NV2"])])
    assert (matrix.score(0, 1), matrix.notes) == (250, ())


def test_odd_reports_become_notes() -> None:
    """A link of no known kind, and a pair of no such GPUs, are named and counted as none."""
    matrix = merge(FOUR, [((0, 1), ["WARP", "SYS"]), ((0, 9), ["PIX"]), ((2, 2), ["PIX"])])
    assert (matrix.score(0, 1), len(matrix.links)) == (10, 1)
    assert matrix.notes == (
        "0-1: 'WARP' is an unknown kind of link and is ignored",
        "0-9 is not a pair of this machine's GPUs",
        "2-2 is not a pair of this machine's GPUs",
    )


def test_a_failed_nvlink_leaves_the_pcie_path() -> None:
    """``N-A`` beside a path means nothing and needs no note."""
    matrix = merge(FOUR, [((0, 1), ["N-A", "PHB"])])
    assert (matrix.score(0, 1), matrix.notes) == (30, ())


def inventory(*indexes: int, **links: tuple[str, ...]) -> Inventory:
    """GPUs of 16 units on NUMA node index // 2, with links such as ``p0_1``."""
    gpus = [Gpu(GpuIndex(i), GpuUuid(f"u{i}"), 16, numa=i // 2) for i in indexes]
    pairs = {key[1:].replace("_", "-"): value for key, value in links.items()}
    return Inventory(gpus=tuple(gpus), links=pairs)


def test_an_inventory_has_its_matrix() -> None:
    """Links and NUMA nodes of the node annotation are those of the matrix; gaps in indexes stay."""
    matrix = matrix_of(inventory(0, 1, 3, p0_1=("PIX",), p1_3=("NV2", "SYS")))
    assert (matrix.gpus, matrix.numas) == ((0, 1, 3), (0, 0, 1))
    assert matrix.scores == ((0, 50, 0), (50, 0, 210), (0, 210, 0))


def test_an_inventory_with_odd_keys_keeps_its_other_links() -> None:
    """A key that names no pair becomes a note."""
    odd = Inventory(gpus=inventory(0, 1).gpus, links={"0-1": ("PIX",), "zero-one": ("PIX",)})
    matrix = matrix_of(odd)
    assert (matrix.score(0, 1), matrix.notes) == (50, ("'zero-one' names no pair",))


def test_a_dgx2_has_a_pcie_tree_below_its_switches() -> None:
    """Its pairs score 600 for the NVLinks and 10 to 50 for the path, nearer GPUs more."""
    scores = [DGX2.matrix.score(0, other) for other in (1, 2, 4, 8)]
    assert scores == [650, 640, 620, 610]


def test_part_of_a_machine_has_the_same_links() -> None:
    """Some GPUs of a machine are joined as they are in the whole."""
    part = DGX1_VOLTA.matrix.part((GpuIndex(2), GpuIndex(3), GpuIndex(6)))
    assert part.scores == ((0, 250, 110), (250, 0, 10), (110, 10, 0))


def test_sums_are_those_of_the_pairs() -> None:
    """A set scores the sum over its pairs, whatever order its GPUs come in."""
    assert DGX1_VOLTA.matrix.sum_of([3, 0, 2]) == 230 + 130 + 250
    assert Matrix(gpus=FOUR).sum_of(FOUR) == 0


def test_pcie_classes_are_ordered() -> None:
    """Every nearer class is worth more than the one before it."""
    assert all(near > far for far, near in pairwise(PCIE.values()))
