"""The speed of a neighbour in the phases of the other pod, from the reports of both."""

from typing import Any

import pytest

from gpuprobe.checks import neighbour
from gpuprobe.checks.answers import MissingAnswerError

Span = tuple[float, float, int]
"""Begin and end of a report of the neighbour in seconds, and its requests."""


def offender() -> list[dict[str, Any]]:
    """Takes all memory at 10 and holds it from 11 to 12, crashes at 13, is killed at 16."""

    def child(name: str, start: float, end: float, answer: dict[str, Any]) -> dict[str, Any]:
        ok = {"answers": [{"ok": {}}, answer]}
        return {"do": "child", "name": name, "from": start, "to": end, "ok": ok}

    def stay(start: float, end: float) -> dict[str, Any]:
        return {"do": "stay", "from": start, "to": end, "ok": {}}

    return [
        child(neighbour.GREEDY, 10, 11, {"ok": {"held_mib": 512}}),
        stay(11, 12),
        child(neighbour.FAULT, 13, 14, {"error": {"name": "CUDA_ERROR_ILLEGAL_ADDRESS"}}),
        stay(14, 15),
        child(neighbour.KILLED, 16, 17, {"ok": {}}),
        stay(17, 18),
    ]


def reported(*spans: Span) -> list[dict[str, Any]]:
    """The neighbour's reports."""
    return [
        {
            "do": "stint",
            "from": start,
            "to": end,
            "ok": {"requests": requests, "seconds": end - start, "intact": True},
        }
        for start, end, requests in spans
    ]


def speeds(*spans: Span) -> tuple[float, float]:
    """Requests a second before the other pod began, and while it held all memory."""
    found = neighbour.figures(reported(*spans), offender())
    return found["before_per_s"], found["greedy_per_s"]


def test_a_report_that_takes_longer_than_a_phase_counts_in_it() -> None:
    """A busy host makes reports longer; work goes on at its speed all the same."""
    assert speeds((4, 9, 500), (9, 13.5, 450)) == (100, 100)


def test_a_neighbour_that_got_little_in_a_phase_was_slow_in_it() -> None:
    """The reports at both ends of the phase count by their short part of it."""
    assert speeds((9, 11.1, 210), (11.1, 11.9, 4), (11.9, 13, 110)) == pytest.approx((100, 5))


def test_a_short_pause_of_the_host_is_no_loss_of_speed() -> None:
    """Most of the phase decides."""
    paused = speeds((9, 10, 100), (11, 11.2, 1), (11.2, 11.6, 40), (11.6, 12, 40))
    assert paused == pytest.approx((100, 100))


def test_a_neighbour_without_a_report_in_a_phase_did_nothing_in_it() -> None:
    """Its work may have ended before."""
    assert speeds((9, 10, 100)) == (100, 0)


@pytest.mark.parametrize("phase", [neighbour.GREEDY, neighbour.FAULT])
def test_an_offender_that_could_not_open_the_gpu_shows_nothing(phase: str) -> None:
    """It neither took memory nor crashed, so that neither row may hold."""
    refusal = {"error": {"name": "CUDA_ERROR_OUT_OF_MEMORY", "code": 2, "call": "cuInit"}}
    found = offender()
    (child,) = [each for each in found if each.get("name") == phase]
    child["ok"] = {"answers": [refusal]}
    with pytest.raises(MissingAnswerError, match="cuInit: CUDA_ERROR_OUT_OF_MEMORY"):
        neighbour.figures(reported((9, 10, 100)), found)
