"""The cases of NVIDIA's allocator tests and of the 2019 user guide, with their figures."""

import nvidia_reference
import pytest

from gpucore.model.links import Matrix
from gpucore.testing.machines import (
    BRIDGES,
    DGX1_PASCAL,
    DGX1_VOLTA,
    DGX2,
    RTX8000,
    V100_GUIDE,
    Machine,
)
from gpucore.topology.policies import GpuGroup, Impossible, plan

EIGHT = range(8)


def gpus(answer: GpuGroup | Impossible) -> list[int]:
    """The GPUs of an answer; none where it is impossible."""
    return [] if isinstance(answer, Impossible) else list(answer.gpus)


def until_refused(matrix: Matrix, count: int, policy: str, node_type: str = "") -> list[list[int]]:
    """The groups given one after the other, until there is none."""
    free, given = set(matrix.gpus), []
    while chosen := gpus(plan(matrix, free, count, policy=policy, node_type=node_type)):
        given.append(chosen)
        free -= set(chosen)
    return given


PAIRS = {
    "rtx8000": (
        RTX8000,
        {(0, 1): 20, (0, 2): 10, (0, 3): 200, (1, 2): 200, (1, 3): 10, (2, 3): 20},
    ),
    "pascal": (
        DGX1_PASCAL,
        {(0, 1): 130, (0, 2): 150, (1, 3): 150, (2, 3): 130, (4, 6): 150, (0, 4): 110, (0, 5): 10},
    ),
    "volta": (
        DGX1_VOLTA,
        {
            (0, 1): 150,
            (0, 2): 130,
            (0, 3): 230,
            (1, 2): 230,
            (1, 3): 130,
            (2, 3): 250,
            (4, 7): 230,
            (6, 7): 250,
            (0, 4): 210,
            (1, 5): 210,
            (2, 6): 110,
            (3, 7): 110,
            (0, 5): 10,
        },
    ),
    "guide": (V100_GUIDE, {(0, 1): 100, (0, 3): 200, (0, 6): 200, (1, 7): 200, (0, 4): 10}),
    "bridges": (BRIDGES, {(0, 1): 410, (6, 7): 410, (1, 2): 10, (0, 7): 10}),
}


@pytest.mark.parametrize("name", PAIRS)
def test_pairs_score_as_in_the_reference(name: str) -> None:
    """Each pair scores the sum of its PCIe class and 100 for each NVLink, in both directions."""
    machine, pairs = PAIRS[name]
    scores = {pair: machine.matrix.score(*pair) for pair in pairs}
    assert scores == pairs
    assert {pair: machine.matrix.score(*reversed(pair)) for pair in pairs} == pairs


def test_the_four_rtx8000_score_460_together() -> None:
    """The whole machine scores the sum over its six pairs."""
    assert plan(RTX8000.matrix, range(4), 4) == GpuGroup((0, 1, 2, 3), 460, 460)


VOLTA_CHOICES = {
    "the only NVLink pair in reach of {0,2,4,5} by the cut": ({0, 2, 4, 5}, 2, (), [4, 5]),
    "a double NVLink within the socket": ({0, 4, 5, 6}, 2, (), [5, 6]),
    "the double link rather than the single ones": ({0, 1, 3}, 2, (), [0, 3]),
    "a double link across sockets rather than a single one within": ({0, 1, 4}, 2, (), [0, 4]),
    "one GPU, and it is required": (EIGHT, 1, (4,), [4]),
    "a pair with GPU 4": (EIGHT, 2, (4,), [4, 7]),
    "a quad with GPU 4": (EIGHT, 4, (4,), [4, 5, 6, 7]),
    "all required": (EIGHT, 4, (0, 2, 4, 6), [0, 2, 4, 6]),
    "a required GPU that is taken": ({1, 2, 3, 4, 5, 6, 7}, 4, (0, 1, 2, 3), []),
    "more required than requested": (EIGHT, 4, (0, 1, 2, 3, 4, 5), []),
    "more required than free": ({0, 1}, 2, (0, 1, 2), []),
}


@pytest.mark.parametrize("name", VOLTA_CHOICES)
def test_volta_best_effort(name: str) -> None:
    """On a DGX-1 Volta the best-effort policy gives what NVIDIA's tests say."""
    free, count, require, expected = VOLTA_CHOICES[name]
    assert gpus(plan(DGX1_VOLTA.matrix, free, count, require)) == expected


SEQUENCES = {
    "rtx8000 pairs": (RTX8000, 2, [[0, 3], [1, 2]]),
    "pascal pairs": (DGX1_PASCAL, 2, [[0, 2], [1, 3], [4, 6], [5, 7]]),
    "volta singles": (DGX1_VOLTA, 1, [[gpu] for gpu in EIGHT]),
    "volta pairs": (DGX1_VOLTA, 2, [[0, 3], [1, 2], [4, 7], [5, 6]]),
    "volta quads": (DGX1_VOLTA, 4, [[0, 1, 2, 3], [4, 5, 6, 7]]),
    "volta eight": (DGX1_VOLTA, 8, [list(EIGHT)]),
}


@pytest.mark.parametrize("name", SEQUENCES)
def test_groups_until_the_machine_is_full(name: str) -> None:
    """Equal requests get the expected groups one after the other, and then a refusal."""
    machine, count, expected = SEQUENCES[name]
    assert sorted(until_refused(machine.matrix, count, "best-effort")) == expected


STATIC_SEQUENCES = {
    "pascal pairs": ("dgx1-pascal", DGX1_PASCAL, 2, [[0, 2], [1, 3], [4, 6], [5, 7]]),
    "volta pairs": ("dgx1-volta", DGX1_VOLTA, 2, [[0, 3], [1, 2], [4, 7], [5, 6]]),
    "volta quads": ("dgx1-volta", DGX1_VOLTA, 4, [[0, 1, 2, 3], [4, 5, 6, 7]]),
    "dgx2 octets": ("dgx2", DGX2, 8, [list(range(8)), list(range(8, 16))]),
    "dgx2 all": ("dgx2", DGX2, 16, [list(range(16))]),
}


@pytest.mark.parametrize("name", STATIC_SEQUENCES)
def test_static_sets_until_the_machine_is_full(name: str) -> None:
    """The maker's sets are given in their order."""
    node_type, machine, count, expected = STATIC_SEQUENCES[name]
    assert until_refused(machine.matrix, count, "static", node_type) == expected


@pytest.mark.parametrize("count", [0, 3, 5, 6, 7, 9])
@pytest.mark.parametrize("machine", [DGX1_PASCAL, DGX1_VOLTA], ids=["pascal", "volta"])
def test_static_sizes_that_have_no_set(machine: Machine, count: int) -> None:
    """NVIDIA's tables have no set of these sizes and never break a larger one up."""
    node_type = "dgx1-volta" if machine is DGX1_VOLTA else "dgx1-pascal"
    answer = plan(machine.matrix, EIGHT, count, policy="static", node_type=node_type)
    assert gpus(answer) == []


def test_static_with_required_gpus() -> None:
    """A set must hold all required GPUs: there is none across the quads, and one pair with 4."""
    volta = DGX1_VOLTA.matrix
    across = plan(volta, EIGHT, 4, (0, 2, 4, 6), policy="static", node_type="dgx1-volta")
    pair = plan(volta, EIGHT, 2, (4,), policy="static", node_type="dgx1-volta")
    assert (gpus(across), gpus(pair)) == ([], [4, 7])


@pytest.mark.parametrize("count", range(1, 9))
def test_simple_takes_the_lowest(count: int) -> None:
    """Without requirements the simple policy gives GPUs 0 to n-1."""
    assert gpus(plan(DGX1_VOLTA.matrix, EIGHT, count, policy="simple")) == list(range(count))


def test_simple_puts_required_gpus_first() -> None:
    """Required GPUs come first, then the lowest others."""
    answers = [plan(DGX1_VOLTA.matrix, EIGHT, n, (4,), policy="simple") for n in (2, 4)]
    assert [gpus(answer) for answer in answers] == [[4, 0], [4, 0, 1, 2]]


GUIDE = {
    2: ([0, 3], 200),
    3: ([0, 2, 3], 500),
    4: ([0, 1, 2, 3], 900),
    5: ([0, 1, 2, 3, 6], 1130),
    6: ([0, 1, 2, 3, 4, 7], 1460),
    8: (list(EIGHT), 2520),
}


@pytest.mark.parametrize("count", GUIDE)
def test_groups_of_the_user_guide_machine(count: int) -> None:
    """On the V100 machine of the 2019 guide each size gets the group and score of the reference."""
    answer = plan(V100_GUIDE.matrix, EIGHT, count)
    assert isinstance(answer, GpuGroup)
    assert (list(answer.gpus), answer.score) == GUIDE[count]


def test_parts_of_the_user_guide_machine() -> None:
    """With some GPUs taken, group and total are those of the reference."""
    three = plan(V100_GUIDE.matrix, {1, 2, 4, 5, 6, 7}, 3)
    two = plan(V100_GUIDE.matrix, {0, 5, 6, 7}, 2)
    assert isinstance(three, GpuGroup)
    assert (three.gpus, three.score) == ((4, 5, 6), 500)
    assert two == GpuGroup((0, 6), 200, 300)


def test_a_padded_set_is_never_given() -> None:
    """Where NVIDIA's reference answers with two GPUs for three, the best whole group is given."""
    pairs = {(a, b): BRIDGES.matrix.score(a, b) for a in EIGHT for b in EIGHT if a < b}
    free = [0, 2, 4, 6, 7]
    assert nvidia_reference.best_effort(pairs, free, 3, whole=False) == (6, 7)
    assert plan(BRIDGES.matrix, free, 3) == GpuGroup((0, 6, 7), 430, 440)


def test_sets_of_four_gpus() -> None:
    """Four GPUs have 4, 6, 4, 1 and no sets of 1 to 5 GPUs, as the yardstick lists them."""
    assert [len(nvidia_reference.sets(range(4), size)) for size in range(6)] == [0, 4, 6, 4, 1, 0]


def test_cuts_of_four_gpus() -> None:
    """The yardstick lists 3 cuts into pairs, 4 into three and one, 1 whole, none into fives."""
    counts = [len(list(nvidia_reference.cuts(range(4), size))) for size in (2, 3, 4, 5)]
    assert counts == [3, 4, 1, 0]
    padded = [max(cut, key=lambda s: s.count(None)) for cut in nvidia_reference.cuts(range(4), 3)]
    assert [each.count(None) for each in padded] == [2, 2, 2, 2]
