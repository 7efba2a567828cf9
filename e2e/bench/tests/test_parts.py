"""A single part of the measurement takes that part and nothing else."""

from pathlib import Path
from subprocess import CalledProcessError
from typing import Any

import pytest

from bench import commands, digest, parts
from bench.creation import Delays


class FakeMeasures:
    """Remembers what was measured."""

    def __init__(self) -> None:
        self.measured: list[str] = []
        self.last = object()
        self.loads = [("start of the extender", 0.1)]

    async def started(self) -> tuple[object, list[float], list[float]]:
        """Two starts."""
        self.measured.append("start")
        return self.last, [3.0, 4.0], [100.0, 110.0]

    async def binds(self, subject: object) -> dict[str, Any]:
        """One rate."""
        assert subject is self.last
        self.measured.append("binds")
        return {"8": 700}


async def test_only_what_was_requested_is_measured() -> None:
    """The extender of the last start is the one whose binds are measured."""
    measures = FakeMeasures()
    found = await parts.measure(["binds", "start"], None, measures, nodes=5)  # type: ignore[arg-type]
    assert measures.measured == ["start", "binds"]
    assert found["ready_seconds"] == {"min": 3.0, "median": 3.5, "max": 4.0}
    assert found["binds"] == {"8": 700}
    assert sorted(found) == ["binds", "load_average", "ready_seconds", "resident_mib"]


@pytest.mark.slow
def test_commands_are_measured_by_whole_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first run of each line is not counted; a line that fails ends the measurement."""
    monkeypatch.setattr(commands, "LINES", {"version": ("--version",)})
    found = commands.measure(tmp_path / "kubeconfig", runs=2)
    assert 0 < found["version"]["cpu_seconds"]["min"] <= found["version"]["cpu_seconds"]["max"]
    assert found["version"]["seconds"]["min"] > 0
    monkeypatch.setattr(commands, "LINES", {"none": ("no-such-command",)})
    with pytest.raises(CalledProcessError):
        commands.measure(tmp_path / "kubeconfig", runs=1)


def test_delays_are_reported_by_their_middle_and_their_end() -> None:
    """Percentiles of the pods in order."""
    delays = Delays([float(number) for number in range(1, 201)], {"extender": 0.123})
    assert digest.creation(delays) == {"p50": 101.0, "p99": 199.0, "cpu_ms": {"extender": 0.12}}
