"""Turns to start, by what kubelet writes about the containers of a pod."""

import json

import pytest

from gpucore.node.isolation.turns import (
    BEGIN_SECONDS,
    StartingStatus,
    StartTurn,
    after,
    blocking,
    starting_status,
    starting_statuses,
)
from gpucore.units import GpuIndex, NodeName, PodUid
from gpucore.wire.pod.spec import Pod

GPU = GpuIndex(0)
WAITING = Pod(PodUid("uid-b"), "team", "b", NodeName("n1"))


def turn(*, seconds: int = 600, ran: bool = False) -> StartTurn:
    """Of pod ``a``, from second 0 on."""
    gpus = frozenset({GPU})
    return StartTurn(PodUid("uid-a"), "team", "a", gpus, 0.0, seconds, ran=ran)


def status(*containers: tuple[bool, str]) -> StartingStatus:
    """Of containers that are ready or not and were started at a time; empty: they wait."""
    rows = [
        {"ready": ready, "state": {"running": {"startedAt": at}} if at else {"waiting": {}}}
        for ready, at in containers
    ]
    return starting_status(json.dumps({"object": {"status": {"containerStatuses": rows}}}).encode())


@pytest.mark.parametrize(
    ("seconds", "ran", "end"),
    [
        (600, False, BEGIN_SECONDS),
        (600, True, 600.0),
        (10, False, 10.0),
        (10, True, 10.0),
    ],
)
def test_a_turn_lasts_until_its_end_and_no_longer(seconds: int, ran: bool, end: float) -> None:
    """A container that does not run keeps nobody waiting for its full time."""
    made = turn(seconds=seconds, ran=ran)
    assert (made.lasts(end - 0.1), made.lasts(end)) == (True, False)
    assert blocking(WAITING, [GPU], [made], end - 0.1) is made
    assert blocking(WAITING, [GPU], [made], end) is None


def test_a_pod_is_ready_when_all_of_its_containers_are() -> None:
    """A proxy beside a model server is ready long before it."""
    assert not status((True, "2026-01-01T00:00:00Z"), (False, "2026-01-01T00:00:00Z")).ready
    assert status((True, "2026-01-01T00:00:00Z"), (True, "2026-01-01T00:00:00Z")).ready
    assert not status().ready


def test_the_last_container_that_was_started_dates_the_turn() -> None:
    """The others may have run for days."""
    found = status((True, "2026-01-01T00:00:00Z"), (False, "2026-01-03T00:00:00Z"), (False, ""))
    assert (found.running, found.started) == (True, "2026-01-03T00:00:00Z")


def test_a_turn_whose_container_ran_ends_with_that_container() -> None:
    """One that has not run yet goes on; what was seen is not forgotten."""
    waits, runs = status((False, "")), status((False, "2026-01-01T00:00:00Z"))
    begun = after(turn(), waits)
    assert begun == turn()
    ran = after(turn(), runs)
    assert ran == turn(ran=True)
    assert after(turn(ran=True), runs) == turn(ran=True)
    assert after(turn(ran=True), waits) is None
    assert after(turn(), status((True, "2026-01-01T00:00:00Z"))) is None


def test_the_pods_of_a_page_are_told_apart() -> None:
    """By UID; a pod without a status is neither running nor ready."""
    running = {"containerStatuses": [{"ready": False, "state": {"running": {"startedAt": "x"}}}]}
    page = {"items": [{"metadata": {"uid": "1"}, "status": running}, {"metadata": {"uid": "2"}}]}
    found = starting_statuses(json.dumps(page).encode())
    assert found == {"1": StartingStatus(running=True, started="x"), "2": StartingStatus()}
