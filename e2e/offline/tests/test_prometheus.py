"""Prometheus and promtool come from PATH together, or both from Debian's package."""

import pytest

from host.errors import SetupError
from host.testing.fakeprograms import FakePrograms
from offline import prometheus


def test_what_is_on_path_is_used(programs: FakePrograms) -> None:
    """Nothing is run or fetched when both programs are there."""
    programs.add("prometheus", "exit 1")
    programs.add("promtool", "exit 1")
    found = prometheus.ensure()
    assert found.prometheus == programs.folder / "prometheus"
    assert found.promtool == programs.folder / "promtool"
    assert programs.calls() == []


@pytest.mark.usefixtures("cache")
def test_one_of_the_two_is_not_enough(programs: FakePrograms) -> None:
    """Two versions would read rules differently, so both are fetched; here from nowhere."""
    programs.add("promtool", "exit 0")
    with pytest.raises(SetupError):
        prometheus.ensure()
