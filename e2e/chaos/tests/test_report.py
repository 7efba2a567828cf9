"""The table of a chaos run."""

from chaos.report import table
from chaos.rounds import ChaosRun, RoundResult


def test_recoveries_are_listed_by_what_was_killed() -> None:
    """Two parts at once are a row of their own; without an election there is no such column."""
    rounds = [
        RoundResult(["etcd"], api_seconds=1.0, seconds=0.5),
        RoundResult(["etcd"], api_seconds=3.0, seconds=0.1),
        RoundResult(["plugin of a"], seconds=2.0),
        RoundResult(["plugin of b"], seconds=4.0),
        RoundResult(["plugin of a", "etcd"], api_seconds=2.0, seconds=7.0),
    ]
    head, _, *rows = table(ChaosRun(1, rounds))
    assert head.endswith("| API server ready again s, median |")
    assert rows == [
        "| etcd | 2 | 0.5 | 0.5 | 3.0 |",
        "| plugin | 2 | 4.0 | 4.0 |  |",
        "| two at once | 1 | 7.0 | 7.0 |  |",
    ]


def test_the_time_without_a_leader_is_listed_beside_the_recovery() -> None:
    """The lease decides it, and not the part that was killed."""
    rounds = [
        RoundResult(["scheduler"], leader_seconds=14.0, seconds=1.0),
        RoundResult(["extender"], seconds=2.0),
    ]
    head, _, *rows = table(ChaosRun(1, rounds))
    assert head.endswith("| scheduler leads again s, median | slowest |")
    assert rows == [
        "| extender | 1 | 2.0 | 2.0 |  |  |  |",
        "| scheduler | 1 | 1.0 | 1.0 |  | 14.0 | 14.0 |",
    ]
