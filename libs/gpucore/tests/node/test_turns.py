"""Turns to start on a GPU: who waits for whom, for how long, and what ends a turn."""

import json
from typing import Any

import msgspec
import pytest

from gpucore.node.isolation.turns import (
    BEGIN_SECONDS,
    MOST_SECONDS,
    StartingStatus,
    StartTurn,
    after,
    blocking,
    starting_status,
    starting_statuses,
    turn_seconds,
)
from gpucore.units import GpuIndex, NodeName, PodUid
from gpucore.wire.pod.spec import Pod

TURN = StartTurn(PodUid("first"), "team", "first", frozenset({GpuIndex(0)}), 100.0, 600)


def pod(uid: str = "next", namespace: str = "team", turn: str = "60") -> Pod:
    """A pod that takes a turn."""
    annotations = {"gpushare/start-turn": turn} if turn else {}
    return Pod(
        PodUid(uid), name=uid, namespace=namespace, node=NodeName("n"), annotations=annotations
    )


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("60", 60),
        ("0", 0),
        ("", 0),
        ("soon", 0),
        ("-1", 0),
        (str(MOST_SECONDS), MOST_SECONDS),
        (str(MOST_SECONDS + 1), MOST_SECONDS),
        ("9" * 30, 0),
    ],
)
def test_a_turn_lasts_as_long_as_the_annotation_states(text: str, seconds: int) -> None:
    """At most an hour; a pod without a number of seconds takes none."""
    assert turn_seconds(pod(turn=text)) == seconds


def test_a_container_that_does_not_run_has_its_turn_for_half_a_minute() -> None:
    """It has failed to start then; one that runs has the time that its pod states."""
    assert TURN.lasts(100.0 + BEGIN_SECONDS - 0.1)
    assert not TURN.lasts(100.0 + BEGIN_SECONDS)
    running = msgspec.structs.replace(TURN, ran=True)
    assert running.lasts(699.9)
    assert not running.lasts(700.0)
    short = msgspec.structs.replace(TURN, seconds=5)
    assert short.lasts(104.9)
    assert not short.lasts(105.0)


def test_a_pod_waits_for_the_pod_that_starts_on_one_of_its_gpus() -> None:
    """However many GPUs each of them has."""
    both = msgspec.structs.replace(TURN, gpus=frozenset({GpuIndex(0), GpuIndex(1)}))
    assert blocking(pod(), [GpuIndex(1), GpuIndex(2)], [both], 101.0) is both
    assert blocking(pod(), [GpuIndex(2)], [both], 101.0) is None
    assert blocking(pod(), [], [both], 101.0) is None


def test_a_pod_waits_neither_for_itself_nor_for_other_namespaces() -> None:
    """No tenant can delay the pods of another."""
    gpus = [GpuIndex(0)]
    assert blocking(pod("first"), gpus, [TURN], 101.0) is None
    assert blocking(pod(namespace="other"), gpus, [TURN], 101.0) is None


def test_a_turn_that_is_over_blocks_nobody_and_the_next_one_does() -> None:
    """Each turn has a time of its own."""
    later = msgspec.structs.replace(TURN, uid=PodUid("second"), since=125.0)
    assert blocking(pod(), [GpuIndex(0)], [TURN, later], 131.0) is later
    assert blocking(pod(), [GpuIndex(0)], [TURN, later], 160.0) is None


@pytest.mark.parametrize(
    ("ran", "status", "ends"),
    [
        (False, StartingStatus(), False),
        (False, StartingStatus(running=True), False),
        (True, StartingStatus(running=True), False),
        (True, StartingStatus(), True),
        (False, StartingStatus(ready=True), True),
        (True, StartingStatus(running=True, ready=True), True),
    ],
)
def test_a_turn_ends_when_the_pod_is_ready_or_its_container_has_ended(
    *, ran: bool, status: StartingStatus, ends: bool
) -> None:
    """A container that has not begun yet has not ended."""
    turn = msgspec.structs.replace(TURN, ran=ran)
    assert (after(turn, status) is None) is ends


def test_that_a_container_ran_is_remembered() -> None:
    """And nothing else of the turn changes."""
    assert after(TURN, StartingStatus(running=True)) == msgspec.structs.replace(TURN, ran=True)
    assert after(TURN, StartingStatus()) == TURN


def item(uid: str, *containers: dict[str, Any]) -> dict[str, Any]:
    """A pod as kubelet writes it."""
    return {"metadata": {"uid": uid}, "status": {"containerStatuses": list(containers)}}


def container(started: str | None = None, *, ready: bool = False) -> dict[str, Any]:
    """The status of a container, which runs where it has a time."""
    return {"ready": ready, "state": {"running": {"startedAt": started}} if started else {}}


@pytest.mark.parametrize(
    ("containers", "expected"),
    [
        ([], StartingStatus()),
        ([container()], StartingStatus()),
        ([container("2026-01-01T00:00:00Z")], StartingStatus(True, False, "2026-01-01T00:00:00Z")),
        (
            [container("2026-01-01T00:00:09Z", ready=True), container("2026-01-01T00:00:05Z")],
            StartingStatus(True, False, "2026-01-01T00:00:09Z"),
        ),
        (
            [container("2026-01-01T00:00:00Z", ready=True)] * 2,
            StartingStatus(True, True, "2026-01-01T00:00:00Z"),
        ),
    ],
)
def test_the_status_is_that_of_all_containers_together(
    containers: list[dict[str, Any]], expected: StartingStatus
) -> None:
    """One that runs is enough, all must be ready, and the last start counts."""
    line = json.dumps({"type": "MODIFIED", "object": item("u", *containers)}).encode()
    assert starting_status(line) == expected
    page = json.dumps({"items": [item("u", *containers), item("v")]}).encode()
    assert starting_statuses(page) == {"u": expected, "v": StartingStatus()}


@pytest.mark.parametrize("text", [b"", b"[]", b'{"object": 7}', b'{"items": 7}', b"\xff"])
def test_of_other_text_nothing_is_known(text: bytes) -> None:
    """It ends no turn."""
    assert starting_status(text) == StartingStatus()
    assert starting_statuses(text) == {}


def test_a_list_without_items_and_a_container_without_a_time_are_read() -> None:
    """The API server may leave both out."""
    assert starting_statuses(b'{"items": null}') == {}
    running = {"state": {"running": {}}}
    line = json.dumps({"object": item("u", running)}).encode()
    assert starting_status(line) == StartingStatus(running=True)
