"""The benchmark of recommended sizes: its generator repeats, and its figures keep their meaning."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "bench"))

import sizing
from sizing_results import Result, freed, kept, result, tables
from sizing_weeks import GIB, UNIT, SecondWeek, hours, recorded
from workload_mix import Trace, TracePod, read_trace, workloads
from workload_shapes import DAY, HOUR, MINUTE, MOST, Shape, Workload, runs

from gpucore.sizing.evidence import SizingRules, highest_peak
from gpucore.sizing.recommendation import recommend

pytestmark = pytest.mark.slow

INTERVAL = 10 * MINUTE
TRACE = Trace(
    (TracePod(1, 460, True), TracePod(1, 810, False), TracePod(2, 1000, False)),
    {"T4": 3, "V100M32": 1},
)
SEED = 7


def mix(number: int = 24) -> list[Workload]:
    """Workloads of a small trace."""
    return workloads(TRACE, SEED, number)


def results() -> list[Result]:
    """Of a dozen workloads, without a margin and with the default one."""
    return [result(each, SEED, (0, 15), TRACE.gpu_sizes, INTERVAL) for each in mix(12)]


def one_of(shape: Shape, need: int = 8) -> Workload:
    """A workload that requests 16 GiB and usually needs ``need`` GiB."""
    taken = 0.9 if shape is Shape.TAKER else 0.0
    return Workload("one", shape, 16 * GIB, 1, False, False, need * GIB, taken)


def test_the_same_seed_gives_the_same_results() -> None:
    """And another week other load."""
    assert results() == results()
    assert runs(mix()[0], SEED, 0) != runs(mix()[0], SEED, 1)


@pytest.mark.parametrize("shape", Shape)
def test_no_use_exceeds_the_request(shape: Shape) -> None:
    """So that every out-of-memory comes from a smaller size."""
    tight = one_of(shape, need=14)
    found = [step for week in (0, 1) for run in runs(tight, SEED, week) for step in run.steps]
    assert found
    assert max(step.used for step in found) <= MOST * tight.request
    assert hours(tight, runs(tight, SEED, 1), tight.request).failed == 0


@pytest.mark.parametrize("shape", Shape)
def test_pods_run_within_their_week_and_steps_follow_one_another(shape: Shape) -> None:
    """A step before the start or out of order would be lost."""
    for run in runs(one_of(shape), SEED, 1):
        times = [step.at for step in run.steps]
        assert 7 * DAY <= run.begin == times[0]
        assert times == sorted(times)
        assert times[-1] < run.end <= 14 * DAY


def test_a_recommended_limit_covers_the_peak_that_was_recorded() -> None:
    """For every workload with a recommendation, at every margin."""
    histories = [recorded(each, SEED, INTERVAL).merged() for each in mix()]
    for history in histories:
        for margin in (0, 10, 15, 20):
            size = recommend(history, UNIT, SizingRules(margin=margin)).size
            assert size is None or size.limit * GIB * 100 >= highest_peak(history) * (100 + margin)


def test_without_a_margin_no_memory_is_lost_and_a_margin_frees_less() -> None:
    """A size that covers the use is at most the request."""
    found = results()
    assert freed(found, 0) >= freed(found, 15)
    assert freed(found, 0) >= 0
    assert 0 <= kept(found, 0) <= kept(found, 15) <= 100


def test_every_workload_has_changed_or_says_why_not() -> None:
    """Those that run once have no size to change."""
    for workload, found in zip(mix(12), results(), strict=True):
        assert (found.by_margin[15].alone == "runs once") == workload.once


def first_failure() -> Iterator[tuple[Workload, int]]:
    """Servers and training jobs that 10 GiB were not enough for."""
    for shape in (Shape.SERVER, Shape.TRAINING):
        workload = one_of(shape, need=11)
        assert hours(workload, runs(workload, SEED, 1), 10 * GIB).failed
        yield workload, 10 * GIB


def test_an_out_of_memory_raises_at_once_and_the_size_stays_for_a_day() -> None:
    """Also while the use stays far below."""
    for workload, limit in first_failure():
        nodes = recorded(workload, SEED, INTERVAL)
        whole = SecondWeek(workload, SEED, nodes, SizingRules(), known=True)
        whole.played(limit)
        at, raised = whole.raises[0]
        assert 5 * raised >= 6 * limit
        second = SecondWeek(workload, SEED, nodes, SizingRules(), known=True)
        second.played(limit, until=at + 1)
        for hour in range(24):
            second.look(at + hour * HOUR, raised)
            size = second.recommended().size
            assert size is not None
            assert size.limit * GIB >= raised


def test_known_events_leave_fewer_hours_with_an_out_of_memory() -> None:
    """What the node cannot know costs pod hours."""
    for workload, limit in first_failure():
        nodes = recorded(workload, SEED, INTERVAL)
        second = SecondWeek(workload, SEED, nodes, SizingRules(), known=True)
        stays = hours(workload, runs(workload, SEED, 1), limit)
        again = second.played(limit)
        assert again.failed < stays.failed
        assert again.total == stays.total


def test_the_tables_have_every_margin_and_class() -> None:
    """As Markdown."""
    text = "\n".join(tables(results(), (0, 15), 15))
    assert all(f"| {shape} |" in text for shape in Shape)
    assert text.count("| 0 % |") == text.count("| 15 % |") == 3


def test_a_trace_is_read_from_its_two_files(tmp_path: Path) -> None:
    """Pods without GPUs do not count."""
    nodes, pods = "openb_node_list_gpu_node.csv", "openb_pod_list_default.csv"
    (tmp_path / nodes).write_text("sn,cpu_milli,memory_mib,gpu,model\nn,1,1,2,T4\nm,1,1,1,T4\n")
    (tmp_path / pods).write_text("name,num_gpu,gpu_milli,qos\na,0,0,BE\nb,1,460,LS\nc,8,1000,BE\n")
    found = read_trace(tmp_path, "default")
    assert found == Trace((TracePod(1, 460, True), TracePod(8, 1000, False)), {"T4": 3})
    assert found.gpu_sizes == (16,)


def test_a_missing_trace_is_an_error_that_names_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And where the trace is published."""
    monkeypatch.setattr(sys, "argv", ["sizing", "--traces", str(tmp_path)])
    with pytest.raises(SystemExit, match=r"no trace in .*kubernetes-scheduler-simulator") as found:
        sizing.main()
    assert str(tmp_path) in str(found.value)
