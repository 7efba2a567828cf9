"""Failures by what they mean to an informer and to a writer."""

import json

import pytest

from gpukube.errors import (
    ConflictError,
    GoneError,
    KubeError,
    NotFoundError,
    ServerError,
    SilentWatchError,
    StatusError,
    ThrottledError,
    UnreachableError,
    VersionWentBackError,
    failure_in_watch,
    failure_of,
)

TOO_LARGE = {"details": {"causes": [{"reason": "Other"}, {"reason": "ResourceVersionTooLarge"}]}}


def reply(status: int, retry_after: str = "", **body: object) -> StatusError:
    """The error for a reply."""
    raw = json.dumps(body).encode()
    return failure_of("GET /x", status, "Reason", raw, retry_after=retry_after)


@pytest.mark.parametrize(
    ("error", "lists", "restored"),
    [
        (KubeError("x"), False, False),
        (UnreachableError("x"), False, False),
        (SilentWatchError("x"), True, False),
        (VersionWentBackError("x"), True, True),
        (reply(410), True, False),
        (reply(504), True, False),
        (reply(500), False, False),
        (reply(403), False, False),
        (reply(500, **TOO_LARGE), True, True),
    ],
)
def test_a_failure_decides_how_the_watch_goes_on(
    error: KubeError, *, lists: bool, restored: bool
) -> None:
    """Whether only a new list helps, and whether the server has other objects than before."""
    assert (error.needs_list, error.shows_restore) == (lists, restored)


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, StatusError),
        (404, NotFoundError),
        (409, ConflictError),
        (410, GoneError),
        (429, ThrottledError),
        (499, StatusError),
        (500, ServerError),
        (503, ServerError),
    ],
)
def test_each_status_has_its_kind(status: int, kind: type[StatusError]) -> None:
    """In a reply and inside a watch."""
    assert type(reply(status)) is kind
    line = json.dumps({"type": "ERROR", "object": {"code": status, "message": "words"}}).encode()
    found = failure_in_watch(line)
    assert type(found) is kind
    assert (found.status, found.message) == (status, "words")
    assert str(found) == f"inside the watch: {status} words"


@pytest.mark.parametrize(
    ("header", "seconds"),
    [("", 0), ("7", 7), ("60", 60), ("61", 60), ("-1", 0), ("1.5", 0), ("soon", 0)],
)
def test_retry_after_is_a_number_of_seconds_up_to_a_minute(header: str, seconds: float) -> None:
    """A date, which HTTP allows too, is not read."""
    assert reply(429, header).retry_after == seconds


def test_the_message_of_the_server_goes_before_the_reason() -> None:
    """Without one there is the reason of the status line."""
    assert str(reply(409, message="words")) == "GET /x: 409 words"
    assert str(reply(409)) == "GET /x: 409 Reason"


def test_what_is_no_status_is_shown_in_part() -> None:
    """The first bytes help; the page of a proxy may be long."""
    found = failure_of("GET /x", 502, "Bad", b"\xff" + b"y" * 500, retry_after="")
    assert found.message == "\ufffd" + "y" * 199
    assert failure_in_watch(b"no JSON").message == "no JSON"
    assert failure_in_watch(b"no JSON").status == 0


def test_a_timeout_is_named() -> None:
    """It has no text of its own."""
    assert str(UnreachableError.because("GET /x", TimeoutError())) == "GET /x: TimeoutError"
    assert str(UnreachableError.because("GET /x", OSError("reset"))) == "GET /x: reset"


@pytest.mark.parametrize("field", ["x", "message", "details"])
def test_a_body_that_is_nested_too_deep_is_a_failure_like_any_other(field: str) -> None:
    """Whoever answers through a proxy of the API server writes it."""
    body = b'{"%s":' % field.encode() + b"[" * 100_000
    assert str(failure_of("GET /x", 502, "Bad", body, retry_after="")).startswith("GET /x: 502 {")
    assert failure_in_watch(b'{"type":"ERROR","object":' + body).message.startswith('{"type"')
