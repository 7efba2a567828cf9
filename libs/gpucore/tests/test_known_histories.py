"""Histories of all nodes: complete or not at all, of bounded number and age."""

from gpucore.sizing.known_histories import (
    WHOLE_SECONDS,
    HistoryRead,
    KnownHistories,
    MergedHistories,
)
from gpucore.sizing.usage_history import FADE_SECONDS, UsageHistory, WorkloadKey

FRESH = 900.0


def key(name: str = "web", namespace: str = "team") -> WorkloadKey:
    """A workload."""
    return WorkloadKey(namespace, "Deployment", name, "main")


def history(name: str = "web", peak: int = 1, *, namespace: str = "team") -> UsageHistory:
    """A history with one sample."""
    found = UsageHistory(key(name, namespace))
    found.record(1000.0, peak)
    return found


def test_the_histories_of_the_nodes_are_added_up() -> None:
    """The highest peak of all nodes counts."""
    merged = MergedHistories()
    for peak in (3, 9, 5):
        merged.add([history(peak=peak)])
    (found,) = merged.complete().values()
    assert (found.peak_bytes, found.samples) == (9, 3)


def test_a_workload_beyond_the_limit_is_unknown_on_every_node() -> None:
    """With the histories of later nodes alone its peak could be missing."""
    merged = MergedHistories(limit=1)
    merged.add([history("first"), history("second", 9)])
    merged.add([history("second"), history("first")])
    assert [each.name for each in merged.complete()] == ["first"]
    assert merged.complete()[key("first")].samples == 2


def test_a_namespace_with_many_workloads_takes_the_place_of_its_own() -> None:
    """Those of another namespace stay known."""
    merged = MergedHistories(of_namespace=2)
    merged.add([history(f"w{number}", namespace="flood") for number in range(5)])
    merged.add([history("web")])
    assert [(each.namespace, each.name) for each in merged.complete()] == [
        ("flood", "w0"),
        ("flood", "w1"),
        ("team", "web"),
    ]


def test_a_workload_that_ended_long_ago_is_unknown() -> None:
    """By its last sample on any node."""
    merged = MergedHistories(1031.0, window_seconds=30.0)
    newer = history("web")
    newer.record(1002.0, 1)
    merged.add([history("web"), history("gone")])
    merged.add([newer])
    assert [each.name for each in merged.complete()] == ["web"]


def test_samples_fade_as_long_as_the_workload_is_away_from_a_node() -> None:
    """A workload of which nothing is left on any node is unknown."""
    merged = MergedHistories(1000.0 + 2 * FADE_SECONDS)
    here = UsageHistory(key())
    here.record(1000.0 + 2 * FADE_SECONDS, 3)
    merged.add([history(peak=9), history("gone")])
    merged.add([here])
    (found,) = merged.complete().values()
    assert (found.key, found.peak_bytes) == (key(), 3)


def read(at: float, *histories: UsageHistory, whole: bool = True) -> HistoryRead:
    """A read of the plugins."""
    return HistoryRead(at, {each.key: each for each in histories}, whole)


def test_a_fresh_read_counts_and_an_old_one_does_not() -> None:
    """Without fresh data nothing is known."""
    known = KnownHistories(FRESH)
    assert known.of(key(), 0.0) == ((), False)
    found = history()
    known.put(read(100.0, found))
    assert known.of(key(), 100.0 + FRESH) == ((found,), True)
    assert known.of(key(), 101.0 + FRESH) == ((), False)
    assert known.of(key("other"), 100.0) == ((), False)


def test_beside_a_read_that_misses_nodes_the_last_whole_one_counts() -> None:
    """For a day; afterwards nobody can tell what the missing nodes measured."""
    known = KnownHistories(FRESH)
    before, after = history(peak=9), history(peak=3)
    known.put(read(0.0, before))
    known.put(read(600.0, after, whole=False))
    assert known.of(key(), 700.0) == ((after, before), True)
    known.put(read(WHOLE_SECONDS + 1, after, whole=False))
    assert known.of(key(), WHOLE_SECONDS + 2) == ((after,), False)


def test_a_workload_that_no_whole_read_has_is_not_certain() -> None:
    """It may run on the missing nodes."""
    known = KnownHistories(FRESH)
    found = history("new")
    known.put(read(0.0, history()))
    known.put(read(600.0, found, whole=False))
    assert known.of(key("new"), 700.0) == ((found,), False)
