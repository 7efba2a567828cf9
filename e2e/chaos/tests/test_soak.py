"""When memory counts as flat."""

from chaos.soak import trend


def test_memory_that_settles_after_the_start_is_flat() -> None:
    """The first quarter of the time is warm-up."""
    samples = [(float(second), 60.0 if second < 200 else 90.0) for second in range(0, 900, 10)]
    assert trend(samples).flat
    assert trend(samples).rise_mib == 0


def test_memory_that_rises_all_the_time_is_not_flat() -> None:
    """A leak of a MiB a minute is found within a quarter of an hour."""
    found = trend([(float(second), 90 + second / 60) for second in range(0, 900, 10)])
    assert not found.flat
    assert found.mib_per_hour == 60


def test_memory_that_falls_is_flat() -> None:
    """Only a rise is a leak."""
    assert trend([(float(second), 90 - second / 60) for second in range(0, 900, 10)]).flat
