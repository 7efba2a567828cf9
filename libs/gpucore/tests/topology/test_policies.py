"""One interface over the policies: refusals, ties, large machines, configured sets and ratings."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpucore.model.links import Matrix, TopologyError, merge
from gpucore.testing.machines import BRIDGES, DGX1_PASCAL, DGX1_VOLTA, DGX2, V100_GUIDE
from gpucore.topology.policies import POLICIES, GpuGroup, Impossible, plan, rating
from gpucore.topology.static import decode_static
from gpucore.units import GpuIndex

VOLTA = DGX1_VOLTA.matrix
SCCGN6 = """{"ecs.sccgn6.24xlarge": {
    "1": [[0], [1], [2], [3], [4], [5], [6], [7]],
    "2": [[0, 2], [1, 3], [4, 6], [5, 7]],
    "4": [[0, 1, 2, 3], [4, 5, 6, 7]],
    "8": [[0, 1, 2, 3, 4, 5, 6, 7]]}}"""

REFUSALS = {
    "no GPUs": ((range(8), 0, ()), "0 GPUs requested: a group has at least one"),
    "fewer than no GPUs": ((range(8), -2, ()), "-2 GPUs requested: a group has at least one"),
    "a GPU that is not there": (({0, 9}, 1, ()), "the machine has no GPU 9"),
    "a required GPU that is taken": (({0, 1}, 2, (4,)), "GPU 4 is required but not free"),
    "more required than requested": (({0, 1}, 1, (0, 1)), "1 GPU requested but 2 are required"),
    "too few free": (({0, 1}, 3, ()), "3 GPUs requested but 2 free"),
    "none free": ((set(), 1, ()), "1 GPU requested but none free"),
}


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("name", REFUSALS)
def test_what_no_policy_can_answer(name: str, policy: str) -> None:
    """Impossible questions get one sentence, the same from every policy."""
    (free, count, require), sentence = REFUSALS[name]
    answer = plan(VOLTA, free, count, require, policy=policy, node_type="dgx1-volta")
    assert answer == Impossible(sentence)


def test_an_unknown_policy_is_refused_with_the_known_ones() -> None:
    """The sentence names what could have been meant."""
    answer = plan(VOLTA, range(8), 1, policy="greedy")
    assert answer == Impossible(
        "'greedy' is not a policy: use best-effort, simple, static, bandwidth"
    )


def test_the_2019_spelling_of_a_policy_is_understood() -> None:
    """The flag of the 2019 extender is spelled best_effort."""
    assert plan(VOLTA, range(8), 3, policy="best_effort") == plan(VOLTA, range(8), 3)


def test_numa_breaks_ties() -> None:
    """Among equal groups the one within a NUMA node wins, unknown nodes claiming no advantage."""
    gpus = tuple(map(GpuIndex, range(4)))
    reports = [((a, b), ["PIX"]) for a in gpus for b in gpus if a < b]
    split = merge(gpus, reports, numa={0: 0, 1: 1, 2: 1, 3: 0})
    for policy in ("best-effort", "bandwidth"):
        assert plan(split, {0, 1, 2}, 2, policy=policy) == GpuGroup((1, 2), 50, 50)
        assert plan(split, gpus, 2, policy=policy) == GpuGroup((0, 3), 50, 100)
    assert plan(merge(gpus, reports, numa={0: 0, 3: 1}), gpus, 1) == GpuGroup((0,), 0, 0)


def test_a_cut_of_equal_groups_goes_before_one_great_group() -> None:
    """Two cuts of a DGX-1 Volta into pairs total 920; the one of four equal pairs is used."""
    assert plan(VOLTA, range(8), 2) == GpuGroup((0, 3), 230, 920)
    assert plan(VOLTA, range(8), 2, {4}) == GpuGroup((4, 7), 230, 920)
    assert plan(VOLTA, range(8), 2, {2}) == GpuGroup((1, 2), 230, 920)


def test_bandwidth_has_no_slow_pair_where_there_can_be_none() -> None:
    """On the guide's machine four GPUs are found that are all joined by NVLinks."""
    answer = plan(V100_GUIDE.matrix, range(8), 4, policy="bandwidth")
    assert isinstance(answer, GpuGroup)
    gpus = answer.gpus
    assert min(V100_GUIDE.matrix.score(a, b) for a in gpus for b in gpus if a < b) == 100


def test_bandwidth_gives_up_sum_for_the_smallest_pair() -> None:
    """A bridge and a far GPU make the larger sum, three GPUs of one switch no slow pair."""
    near = {(0, 1): ["NV4"], (2, 3): ["PIX"], (2, 4): ["PIX"], (3, 4): ["PIX"]}
    gpus = tuple(map(GpuIndex, range(6)))
    matrix = merge(gpus, [((a, b), near.get((a, b), ["SYS"])) for a in gpus for b in gpus if a < b])
    assert plan(matrix, gpus, 3, policy="bandwidth") == GpuGroup((2, 3, 4), 150, 570)
    assert plan(matrix, gpus, 3) == GpuGroup((0, 1, 5), 420, 570)


def test_configured_sets_and_their_fall_backs() -> None:
    """A set of the size, else the first GPUs of a larger free set, else a sentence."""
    sets = decode_static(SCCGN6)

    def ask(free: object, count: int, require: tuple[int, ...] = ()) -> object:
        answer = plan(
            DGX1_PASCAL.matrix,
            free,  # type: ignore[arg-type]
            count,
            require,
            policy="static",
            node_type="ecs.sccgn6.24xlarge",
            static=sets,
        )
        return answer.gpus if isinstance(answer, GpuGroup) else answer.sentence  # type: ignore[union-attr]

    assert ask(range(8), 2) == (0, 2)
    assert ask({1, 2, 3, 5, 7}, 2) == (1, 3)
    assert ask(range(8), 3) == (0, 1, 2)
    assert ask({2, 4, 5, 6, 7}, 3) == (4, 5, 6)
    assert ask(range(8), 3, (7,)) == (4, 5, 7)
    assert ask({0, 1, 2, 4, 5, 6}, 3) == (
        "no configured set of 3 GPUs is free on 'ecs.sccgn6.24xlarge'"
    )


def test_a_node_type_without_sets_is_named() -> None:
    """The sentence states which types are known; configured ones join the shipped ones."""
    answer = plan(VOLTA, range(8), 2, policy="static", static=decode_static(SCCGN6))
    assert answer == Impossible(
        "no sets are configured for node type None; "
        "known: dgx1-pascal, dgx1-volta, dgx2, ecs.sccgn6.24xlarge"
    )


BAD_SETS = {
    "no JSON": "2: [0, 1]",
    "a set of another size": '{"t": {"2": [[0, 1, 2]]}}',
    "a GPU twice": '{"t": {"2": [[1, 1]]}}',
    "a GPU twice beside another": '{"t": {"2": [[1, 1, 2]]}}',
    "a size that is no number": '{"t": {"two": [[0, 1]]}}',
    "a negative GPU": '{"t": {"1": [[-1]]}}',
    "no sets": '{"t": [[0, 1]]}',
}


@pytest.mark.parametrize("name", BAD_SETS)
def test_configurations_that_are_none(name: str) -> None:
    """A configuration that cannot be meant is refused when it is read."""
    with pytest.raises(TopologyError):
        decode_static(BAD_SETS[name])


def big(gpus: int) -> Matrix:
    """A machine of many GPUs: bridges of two, switches of eight."""
    pairs = [(a, b) for a in range(gpus) for b in range(a + 1, gpus)]
    kinds = [
        ["NV4", "PIX"] if a // 2 == b // 2 else ["PIX"] if a // 8 == b // 8 else ["SYS"]
        for a, b in pairs
    ]
    return merge(tuple(map(GpuIndex, range(gpus))), zip(pairs, kinds, strict=True))


def test_more_than_sixteen_gpus_get_a_good_group() -> None:
    """Beyond exact size, groups are grown: bridges and switches are found, required GPUs kept."""
    machine = big(24)
    free = set(range(24))
    assert plan(machine, free, 2) == GpuGroup((0, 1), 450, 5400)
    eight = plan(machine, free - {0}, 8)
    assert isinstance(eight, GpuGroup)
    assert eight.gpus == tuple(range(8, 16))
    for policy in ("best-effort", "bandwidth"):
        answer = plan(machine, free, 3, (20,), policy=policy)
        assert isinstance(answer, GpuGroup)
        assert set(answer.gpus) >= {20, 21}
        assert len(answer.gpus) == 3


def test_few_free_gpus_of_a_large_machine_are_exact() -> None:
    """With at most sixteen free the answer is that of a machine of these GPUs alone."""
    machine, free = big(24), {1, 3, 5, 7, 8, 9, 10, 20, 22}
    chosen = plan(machine, free, 4)
    alone = plan(machine.part(tuple(map(GpuIndex, sorted(free)))), free, 4)
    assert chosen == alone
    assert isinstance(chosen, GpuGroup)


def test_an_nvswitch_machine_gives_neighbours() -> None:
    """Where all NVLinks are equal the PCIe tree decides, and then the lowest index."""
    octet = plan(DGX2.matrix, range(16), 8)
    pair = plan(DGX2.matrix, {1, 5, 6, 9}, 2)
    assert isinstance(octet, GpuGroup)
    assert isinstance(pair, GpuGroup)
    assert (octet.gpus, pair.gpus) == (tuple(range(8)), (5, 6))


@pytest.mark.parametrize("policy", ["best-effort", "bandwidth"])
def test_the_strongest_links_of_sixteen_gpus_are_compared_exactly(policy: str) -> None:
    """No sum, and no square of one, exceeds what the tables hold; one weaker link decides."""
    gpus = tuple(map(GpuIndex, range(16)))
    weak = {(0, 1): ["NV71", "PSB"]}
    pairs = [((a, b), weak.get((a, b), ["NV72", "PSB"])) for a in gpus for b in gpus if a < b]
    matrix, most = merge(gpus, pairs), 7260
    assert plan(matrix, gpus, 15, policy=policy) == GpuGroup((0, *gpus[2:]), 105 * most, 105 * most)
    assert plan(matrix, gpus, 16, policy=policy) == GpuGroup(
        gpus, 120 * most - 100, 120 * most - 100
    )
    assert plan(matrix, gpus, 2, policy=policy) == GpuGroup((0, 2), most, 8 * most)


def mark(score: int, gpus: int) -> int:
    """The rating of a group of this score."""
    return rating(GpuGroup(tuple(map(GpuIndex, range(gpus))), score, score))


@pytest.mark.parametrize(
    ("pair", "expected"),
    [(0, 0), (10, 1), (30, 2), (60, 4), (100, 5), (230, 7), (410, 8), (650, 9), (1860, 9)],
)
def test_pairs_are_rated_by_their_links(pair: int, expected: int) -> None:
    """From nothing over PCIe to many NVLinks the mark rises."""
    assert mark(pair, 2) == expected


def test_a_single_gpu_has_no_links_to_lack() -> None:
    """One GPU rates 10 on every node, so that other scores decide."""
    assert mark(0, 1) == 10


@given(st.integers(2, 16), st.integers(0, 120 * 186), st.integers(0, 1000))
def test_better_links_never_rate_lower(gpus: int, steps: int, more: int) -> None:
    """The mark grows with the score and stays within 0 to 10."""
    assert 0 <= mark(steps * 10, gpus) <= mark((steps + more) * 10, gpus) <= 10


@settings(deadline=None)
@given(st.sets(st.integers(0, 7), min_size=1), st.integers(1, 8), st.sampled_from([*POLICIES]))
def test_answers_are_free_gpus_of_the_requested_number(
    free: set[int], count: int, policy: str
) -> None:
    """Whatever the policy, a group is of the requested size, of free GPUs, each once."""
    answer = plan(BRIDGES.matrix, free, count, policy=policy, node_type="dgx1-volta")
    if isinstance(answer, GpuGroup):
        assert len(set(answer.gpus)) == len(answer.gpus) == count
        assert set(answer.gpus) <= free
        assert answer.partition_score >= answer.score == BRIDGES.matrix.sum_of(answer.gpus)
    else:
        assert len(free) < count or policy == "static"
