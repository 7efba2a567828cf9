"""Simulated weeks: nothing over-allocated, everything starts, GPU time adds up."""

import random
from collections.abc import Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpucore.defrag.budgets import Budgets
from gpucore.defrag.week_moves import WeekMoves
from gpucore.simulate.hosts import Host
from gpucore.simulate.jobs import DAY, Job, PodClass, TimedPod, WeekPlan, jobs, with_lifetimes
from gpucore.simulate.traces import TraceError, TraceNode, TracePod
from gpucore.simulate.week import fits_empty, week
from gpucore.simulate.weekfigures import HOUR, WeekFigures, waiting
from gpucore.units import MILLI, NodeName

NODES = [TraceNode("a", 64_000, 64_000, 4, "T4"), TraceNode("b", 16_000, 64_000, 8, "A10")]
PODS = [
    TracePod("s", 2_000, 1_000, 1, 300),
    TracePod("o", 4_000, 1_000, 1, 1000),
    TracePod("m", 8_000, 1_000, 4, 1000),
    TracePod("t", 1_000, 1_000, 1, 600, frozenset({"T4"})),
    TracePod("c", 1_000, 1_000, 0, 0),
]
TOO_LARGE = TracePod("x", 1_000, 1_000, 16, 1000)
PLAN = WeekPlan(load=1.0, days=1, warm_days=0, longest_seconds=20_000, gangs=0.3)
LIVES = st.lists(st.integers(0, 40_000), min_size=len(PODS), max_size=len(PODS))


def drawn(lives: list[int], seed: int, plan: WeekPlan = PLAN) -> list[Job]:
    """The jobs of a day."""
    timed = [TimedPod(pod, 1000.0 + life) for pod, life in zip(PODS, lives, strict=True)]
    chance = random.Random(seed)
    timed.append(TimedPod(TOO_LARGE, 9.0))
    return jobs(timed, 12, plan, pick=chance.randrange, fits=fits_empty(NODES))


def held(hosts: Mapping[NodeName, Host]) -> int:
    """Thousandths of GPUs that pods hold, after a check that no host gives more than it has."""
    total = 0
    for host in hosts.values():
        assert min(host.cpu_milli, host.memory_mib) >= 0
        for device in host.node_info.devices.values():
            assert 0 <= device.free <= device.total == MILLI
            assert device.used <= device.total
            total += MILLI - device.free
    return total


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(
    LIVES,
    st.integers(0, 99),
    st.sampled_from(["binpack", "spread", "fragmentation", "published"]),
    st.booleans(),
)
def test_a_day_adds_up(lives: list[int], seed: int, policy: str, defragmenting: bool) -> None:
    """Every job starts once, no host gives more than it has, and GPU time is that of the pods."""
    found = drawn(lives, seed)
    times: list[tuple[float, int]] = []
    figures = week(
        NODES,
        found,
        policy,
        PLAN,
        workload=PODS,
        pick=random.Random(0).randrange,
        moves=WeekMoves(NODES, policy) if defragmenting else None,
        observe=lambda now, hosts: times.append((now, held(hosts))),
    )
    assert sum(one.jobs for one in figures.waiting.values()) == len(found)
    assert [now for now, _ in times] == sorted(now for now, _ in times)
    ends = [min(now, PLAN.seconds) for now, _ in times[1:]] + [PLAN.seconds]
    spans = zip(times, ends, strict=True)
    seen = sum(max(end - now, 0.0) * milli for (now, milli), end in spans)
    assert figures.allocated == pytest.approx(seen / MILLI / HOUR)
    assert figures.measured == pytest.approx(12 * 24)
    assert 0 <= figures.stranded <= figures.measured - figures.allocated + 1e-6
    assert 0 <= figures.wasted <= figures.measured - figures.allocated + 1e-6


def day(
    *found: Job,
    policy: str = "binpack",
    defragmenting: bool = False,
    budgets: Budgets | None = None,
) -> WeekFigures:
    """These jobs on one node of two GPUs and another of two."""
    nodes = [TraceNode("a", 9_999, 9_999, 2), TraceNode("b", 9_999, 9_999, 2)]
    chance = random.Random(0)
    return week(
        nodes,
        found,
        policy,
        PLAN,
        workload=PODS,
        pick=chance.randrange,
        moves=WeekMoves(nodes, policy, budgets) if defragmenting else None,
    )


SHARE = TracePod("s", 1, 1, 1, 500)
PAIR = TracePod("p", 1, 1, 2, 1000)


def test_a_pod_waits_for_the_end_of_another() -> None:
    """The wait is from arrival to start; free GPUs count as wasted while it waits."""
    spread = [Job(n, SHARE, 7200.0, 0.0) for n in range(2)]
    figures = day(*spread, Job(2, PAIR, 3600.0, 3600.0), policy="spread")
    assert figures.waiting[PodClass.SEVERAL].mean == 3600.0
    assert figures.wasted == pytest.approx(2.0)
    assert figures.allocated == pytest.approx(2 * 2 * 0.5 + 2)
    assert figures.stranded == pytest.approx(2.0)


LATER = Job(3, TracePod("c", 1, 1, 0, 0), 10.0, 4200.0)
"""A job that arrives ten minutes after the pair: moves are looked for at events."""


def test_defragmentation_moves_a_pod_for_a_waiting_one() -> None:
    """The pair starts after ten minutes, and the moved share still ends in its time."""
    spread = [Job(n, SHARE, 7200.0, 0.0) for n in range(2)]
    pair = Job(2, PAIR, 3600.0, 3600.0)
    figures = day(*spread, pair, LATER, policy="spread", defragmenting=True)
    assert (figures.moves, figures.waiting[PodClass.SEVERAL].mean) == (1, 600.0)
    assert figures.allocated == pytest.approx(2 * 2 * 0.5 + 2)
    assert figures.wasted == pytest.approx(2 * 600 / HOUR)


def test_defragmentation_moves_a_pod_for_a_waiting_share() -> None:
    """As ``gpushare defrag``, which looks at every waiting pod and not at the oldest one alone."""
    sizes = (600, 600, 600, 300)
    held = [Job(n, TracePod("s", 1, 1, 1, milli), 7200.0, 0.0) for n, milli in enumerate(sizes)]
    oldest = Job(4, TracePod("p", 1, 1, 2, 1000), 3600.0, 3000.0)
    share = Job(5, TracePod("w", 1, 1, 1, 900), 3600.0, 3600.0)
    figures = day(*held, oldest, share, LATER, policy="spread", defragmenting=True)
    assert figures.moves == 1
    assert figures.waiting[PodClass.SHARE].p95 == 600.0
    assert figures.waiting[PodClass.SEVERAL].mean == 4200.0


def test_no_pod_moves_beyond_the_budget_of_an_hour() -> None:
    """As in a cluster, where the history of evictions counts."""
    spread = [Job(n, SHARE, 7200.0, 0.0) for n in range(2)]
    pair = Job(2, PAIR, 3600.0, 3600.0)
    none = Budgets(total=0)
    figures = day(*spread, pair, LATER, policy="spread", defragmenting=True, budgets=none)
    assert (figures.moves, figures.waiting[PodClass.SEVERAL].mean) == (0, 3600.0)


@pytest.mark.parametrize(("most", "moves", "second_wait"), [(1, 1, 2890.0), (2, 2, 690.0)])
def test_the_moves_of_the_last_hour_count(most: int, moves: int, second_wait: float) -> None:
    """The second pair gets no move within the hour where the budget is one."""
    found = [
        *(Job(n, SHARE, 7200.0, 0.0) for n in range(2)),
        Job(2, PAIR, 60.0, 3600.0),
        LATER,
        Job(4, SHARE, 7200.0, 4300.0),
        Job(5, PAIR, 60.0, 4310.0),
        Job(6, LATER.pod, 10.0, 5000.0),
    ]
    budgets = Budgets(total=most, per_node=most, per_namespace=most)
    figures = day(*found, policy="spread", defragmenting=True, budgets=budgets)
    assert figures.moves == moves
    assert figures.waiting[PodClass.SEVERAL].mean == (600.0 + second_wait) / 2


def test_no_pod_moves_for_a_gang() -> None:
    """One member would start without the others."""
    spread = [Job(n, SHARE, 7200.0, 0.0) for n in range(2)]
    gang = Job(2, PAIR, 3600.0, 3600.0, members=2)
    figures = day(*spread, gang, LATER, policy="spread", defragmenting=True)
    assert (figures.moves, figures.waiting[PodClass.GANG].mean) == (0, 3600.0)


def test_members_of_a_gang_do_not_move() -> None:
    """A gang stays whole where it is."""
    gang = Job(0, SHARE, 7200.0, 0.0, members=2)
    pair = Job(2, PAIR, 3600.0, 3600.0)
    figures = day(gang, pair, LATER, policy="spread", defragmenting=True)
    assert (figures.moves, figures.waiting[PodClass.SEVERAL].mean) == (0, 3600.0)


def test_no_pod_moves_where_its_cpu_is_not_free() -> None:
    """No other node has CPU for it."""
    large = TracePod("s", 6_000, 1, 1, 500)
    spread = [Job(n, large, 7200.0, 0.0) for n in range(2)]
    pair = Job(2, PAIR, 3600.0, 3600.0)
    figures = day(*spread, pair, LATER, policy="spread", defragmenting=True)
    assert (figures.moves, figures.waiting[PodClass.SEVERAL].mean) == (0, 3600.0)


def test_no_pod_moves_to_gpus_of_another_model() -> None:
    """The pod that moves keeps to the models that it names."""
    nodes = [TraceNode("a", 9_999, 9_999, 2, "T4"), TraceNode("b", 9_999, 9_999, 2, "A10")]
    for models, moves in ((frozenset({"T4"}), 0), (frozenset[str](), 1)):
        share = TracePod("s", 1, 1, 1, 500, models)
        fixed = TracePod("f", 1, 1, 1, 1000, frozenset({"A10"}))
        found = [
            Job(0, share, 7200.0, 0.0),
            Job(1, fixed, 7200.0, 0.0),
            Job(2, TracePod("p", 1, 1, 2, 1000, frozenset({"T4"})), 3600.0, 3600.0),
            LATER,
        ]
        chance = random.Random(0)
        figures = week(
            nodes,
            found,
            "binpack",
            PLAN,
            workload=PODS,
            pick=chance.randrange,
            moves=WeekMoves(nodes, "binpack"),
        )
        assert figures.moves == moves


def test_members_of_a_gang_start_together() -> None:
    """A gang of three with one GPU each waits until three are free."""
    one = TracePod("o", 1, 1, 1, 1000)
    figures = day(
        Job(0, one, 1000.0, 0.0), Job(1, one, 2000.0, 0.0), Job(2, one, 10.0, 500.0, members=3)
    )
    assert figures.waiting[PodClass.GANG].mean == 500.0


def test_jobs_request_the_load() -> None:
    """GPU time up to one job beyond the load, in order, repeatable, without what never fits."""
    found = drawn([5000] * len(PODS), 7)
    requested = sum(job.milli * job.seconds for job in found) / MILLI
    assert 12 * DAY <= requested <= 12 * DAY + 12 * 20_000
    assert [job.number for job in found] == list(range(len(found)))
    assert [job.arrival for job in found] == sorted(job.arrival for job in found)
    assert found == drawn([5000] * len(PODS), 7) != drawn([5000] * len(PODS), 8)
    assert {job.pod_class for job in found} == set(PodClass)
    assert not any(job.pod is TOO_LARGE for job in found)
    assert max(job.seconds for job in drawn([40_000] * len(PODS), 7)) == 20_000


def test_a_trace_that_fits_nowhere_is_refused() -> None:
    """Otherwise no job would ever use GPU time."""
    timed = [TimedPod(TOO_LARGE, 9.0), TimedPod(PODS[-1], 9.0)]
    with pytest.raises(TraceError, match="fits the empty cluster"):
        jobs(timed, 12, PLAN, pick=random.Random(0).randrange, fits=fits_empty(NODES))


def test_lifetimes_are_those_of_the_class() -> None:
    """Or of any pod where the class is not known."""
    known = [TimedPod(PODS[0], 5.0), TimedPod(PODS[1], 7.0)]
    found = with_lifetimes(PODS, known, random.Random(0).randrange)
    assert [each.seconds for each in found[:2]] == [5.0, 7.0]
    assert {each.seconds for each in found[2:]} <= {5.0, 7.0}


def test_percentiles_are_values_of_jobs() -> None:
    """By nearest rank."""
    found = waiting([float(n) for n in range(1, 101)])
    assert (found.jobs, found.mean, found.p50, found.p95) == (100, 50.5, 50.0, 95.0)


def test_a_week_of_too_many_jobs_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pods of a second would take minutes to draw and hours to place."""
    monkeypatch.setattr("gpucore.simulate.jobs.MOST_JOBS", 100)
    short = TimedPod(TracePod("p", 0, 0, 1, 1000), 1.0)
    with pytest.raises(TraceError, match="too short: 100 do not make a week"):
        jobs([short], 8, WeekPlan(), pick=random.Random(1).randrange, fits=lambda *_: True)
