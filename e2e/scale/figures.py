"""The figures that are recorded, and when a later run is worse than they are."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

NODES: Final = 10_000
PODS: Final = 100_000
TOLERANCE: Final = 0.2
"""A figure may be worse by this part of the recorded one."""


class ScaleFigure(msgspec.Struct, frozen=True):
    """One figure of a run.

    Attributes:
        name: in the table and in messages.
        value: median of the runs.
        unit: behind the value.
        higher_is_better: such as a rate; lower is better otherwise.
    """

    name: str
    value: float
    unit: str
    higher_is_better: bool = False

    def is_worse_than(self, recorded: float) -> bool:
        """Whether it is more than the tolerance worse."""
        if self.higher_is_better:
            return self.value * (1 + TOLERANCE) < recorded
        return self.value > recorded * (1 + TOLERANCE)


def of(found: Mapping[str, Any]) -> Iterator[ScaleFigure]:
    """All figures of a run that have a range."""
    yield ScaleFigure("start of the extender to ready", found["ready_seconds"]["median"], "s")
    for verb, series in found["latency_ms"].items():
        for names, at in series.items():
            for part in ("p50", "p99"):
                name = f"{verb} {part}, {names} node names"
                yield ScaleFigure(name, at[part]["median"], "ms")
    rate = found["pods_per_second"]
    yield ScaleFigure("pods through kube-scheduler", rate, "pods/s", higher_is_better=True)
    for process, mib in found["resident_mib"].items():
        yield ScaleFigure(f"resident memory of {process}", mib, "MiB")


def worse(recorded: Mapping[str, Any], found: Mapping[str, Any]) -> list[str]:
    """A sentence for each figure that is more than 20 % worse than the recorded one."""
    before = {figure.name: figure.value for figure in of(recorded)}
    return [
        f"{one.name}: {one.value:g} {one.unit}, recorded {before[one.name]:g}; more than "
        f"{TOLERANCE:.0%} worse"
        for one in of(found)
        if one.name in before and one.is_worse_than(before[one.name])
    ]
