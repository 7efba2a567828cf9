"""What nodes need is compared with what the machine has, for those that run and those to come."""

from dataclasses import replace

import pytest

from preflight.checks import GIB, Cluster, Machine, Outcome, Row, rows

DEMO = Cluster("gpushare-demo", nodes=3, running=3, age_hours=1)
ENOUGH = Machine(
    inotify_instances=1024,
    instances_used=20,
    inotify_watches=524_288,
    open_files=20_000,
    file_max=1_000_000,
    files_open=3_000,
    memory_available=16 * GIB,
    swap_used=0,
    engine_disk_free=60 * GIB,
    cache_disk_free=60 * GIB,
    cold=False,
    clusters=(),
    ports=((8080, False),),
)


def found(machine: Machine, check: str, *, nodes: int = 3) -> Row:
    return next(row for row in rows(machine, nodes=nodes) if row.check == check)


def test_a_machine_that_has_enough_passes_every_check() -> None:
    assert {row.outcome for row in rows(ENOUGH, nodes=9)} == {Outcome.PASS}
    assert all(not row.command for row in rows(ENOUGH, nodes=9))


@pytest.mark.parametrize(("used", "nodes", "low"), [(20, 3, False), (75, 3, True), (20, 9, True)])
def test_the_usual_limit_of_inotify_instances_is_enough_for_one_cluster_alone(
    used: int, nodes: int, low: bool
) -> None:
    """The limit of 128 is that of most distributions; nodes that run have used some of it."""
    row = found(
        replace(ENOUGH, inotify_instances=128, instances_used=used),
        "inotify instances",
        nodes=nodes,
    )
    assert (row.outcome is Outcome.RAISE) is low
    if low:
        assert row.parameter == ("fs.inotify.max_user_instances", 1024)
        assert row.command == "sudo sysctl fs.inotify.max_user_instances=1024"


def test_instances_that_only_root_can_count_are_those_of_the_nodes_that_run() -> None:
    """An ordinary user is told the need, too."""
    alone = replace(ENOUGH, inotify_instances=128, instances_used=None)
    assert found(alone, "inotify instances").outcome is Outcome.PASS
    beside = replace(alone, clusters=(DEMO,))
    assert found(beside, "inotify instances").outcome is Outcome.RAISE


def test_a_parameter_is_raised_to_what_is_needed_where_that_is_more() -> None:
    row = found(replace(ENOUGH, instances_used=1_500), "inotify instances")
    assert row.parameter is not None
    assert row.parameter[1] >= 1_500 + 3 * 18


@pytest.mark.parametrize(
    ("lacking", "check", "outcome"),
    [
        ({"inotify_watches": 8_192}, "inotify watches", Outcome.RAISE),
        ({"file_max": 10_000}, "open files of all programs", Outcome.RAISE),
        ({"open_files": 1_024}, "open files of one program", Outcome.FAIL),
        ({"memory_available": GIB}, "free memory", Outcome.FAIL),
        ({"engine_disk_free": GIB}, "free disk of Docker", Outcome.FAIL),
        ({"cache_disk_free": 0}, "free disk of the cache", Outcome.FAIL),
        ({"engine_disk_free": 20 * GIB, "cold": True}, "free disk of Docker", Outcome.FAIL),
        ({"cache_disk_free": 20 * GIB, "cold": True}, "free disk of the cache", Outcome.FAIL),
        ({"swap_used": GIB}, "swap in use", Outcome.WARN),
        ({"ports": ((8080, True),)}, "port 8080", Outcome.WARN),
        (
            {"clusters": (Cluster("old", nodes=3, running=3, age_hours=7),)},
            "cluster old",
            Outcome.WARN,
        ),
        (
            {"clusters": (Cluster("half", nodes=3, running=1, age_hours=1),)},
            "cluster half",
            Outcome.WARN,
        ),
    ],
)
def test_what_lacks_has_a_row_with_what_to_type(
    lacking: dict[str, object], check: str, outcome: Outcome
) -> None:
    """A warning does not stop a run; the other outcomes do where they cannot be mended."""
    machine = replace(ENOUGH, **lacking)  # type: ignore[arg-type]
    others = [row for row in rows(machine, nodes=3) if row.check != check]
    row = found(machine, check)
    assert row.outcome is outcome
    assert row.command
    assert {each.outcome for each in others} == {Outcome.PASS}
