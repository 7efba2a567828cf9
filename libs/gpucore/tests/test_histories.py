"""The histories of a node: which one goes where there are too many, and what is handed out."""

from gpucore.sizing.histories import Histories
from gpucore.sizing.usage_history import FADE_SECONDS, UsageHistory, WorkloadKey

NOW = 1.7e9


def key(name: str, namespace: str = "team") -> WorkloadKey:
    """A Deployment."""
    return WorkloadKey(namespace, "Deployment", name, "main")


def seen(name: str, at: float, namespace: str = "team") -> UsageHistory:
    """A history whose last sample is of this time."""
    found = UsageHistory(key(name, namespace))
    found.record(at, 1 << 30, sm_percent=40)
    return found


def names(histories: Histories) -> list[str]:
    """Names of the workloads, in the order in which they are written."""
    return [each.key.name for each in histories.all()]


def test_the_namespace_with_the_most_loses_the_one_that_was_measured_least_recently() -> None:
    """However old the only history of another namespace is."""
    histories = Histories(limit=3)
    histories.put([seen("z", 1, "zoo"), seen("a", 30), seen("b", 20), seen("c", 40)])
    assert names(histories) == ["a", "c", "z"]
    assert len(histories) == 3


def test_a_new_namespace_gets_its_place_from_the_one_with_the_most() -> None:
    """And neither loses its own history nor that of another small one."""
    histories = Histories(limit=3)
    histories.put([seen("a", 10), seen("b", 20), seen("z", 1, "zoo")])
    histories.current(key("x", "new"), NOW)
    assert names(histories) == ["x", "b", "z"]


def test_a_new_history_is_not_the_one_that_goes() -> None:
    """It has no sample yet, so it is older than all others by its figures."""
    histories = Histories(limit=2)
    histories.put([seen("b", 30), seen("c", 20)])
    histories.current(key("a-new"), NOW)
    assert names(histories) == ["a-new", "b"]
    assert histories.get(key("c")) is None
    alone = Histories(limit=0)
    alone.put([seen("a", 20)])
    assert names(alone) == []


def test_the_current_history_is_faded_and_stays_the_one_that_is_recorded() -> None:
    """Samples of earlier weeks count less from then on."""
    histories = Histories()
    histories.put([seen("a", NOW)])
    found = histories.current(key("a"), NOW + FADE_SECONDS)
    assert (found.samples, found.faded_at) == (0, NOW + FADE_SECONDS)
    assert histories.get(key("a")) is found


def test_a_copy_does_not_change_while_it_is_written() -> None:
    """Another thread writes the file while samples are added."""
    histories = Histories()
    histories.put([seen("a", NOW)])
    (copy,) = histories.copies()
    histories.current(key("a"), NOW).record(NOW, 1 << 40, sm_percent=90)
    assert copy == seen("a", NOW)
