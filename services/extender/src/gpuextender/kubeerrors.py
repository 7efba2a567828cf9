"""What can go wrong between this process and the API server, by what it means to a caller.

Every error has the request in its text::

    KubeError
    ├── UnreachableError        no answer: refused, reset, timed out; the request may have been done
    └── StatusError             an answer other than success
        ├── NotFoundError       404
        ├── ConflictError       409
        ├── GoneError           410, the resource version is too old
        ├── ThrottledError      429, has ``retry_after``; the request was not done
        └── ServerError         5xx; the request may have been done

Apart from it stands AccessError: it is not known where the API server is.
"""

from collections.abc import Mapping
from typing import Final, Self

import msgspec


class AccessError(Exception):
    """Nothing says where the API server is, or what says it cannot be read."""


class KubeError(Exception):
    """The API server did not do what was asked, or did not say so."""


class UnreachableError(KubeError):
    """No answer came; whether the request was carried out is unknown."""

    @classmethod
    def because(cls, asked: str, error: Exception) -> Self:
        """What became of a request; timeouts have no text of their own."""
        return cls(f"{asked}: {str(error) or type(error).__name__}")


class StatusError(KubeError):
    """The API server answered with a failure.

    Attributes:
        status: HTTP status.
        retry_after: seconds the server asks to wait; 0 where it does not say.
    """

    def __init__(self, request: str, *, status: int, message: str, retry_after: float = 0) -> None:
        super().__init__(f"{request}: {status} {message}")
        self.status = status
        self.message = message
        self.retry_after = retry_after


class NotFoundError(StatusError):
    """404."""


class ConflictError(StatusError):
    """409."""


class GoneError(StatusError):
    """410."""


class ThrottledError(StatusError):
    """429."""


class ServerError(StatusError):
    """5xx."""


_ERRORS: Final[Mapping[int, type[StatusError]]] = {
    404: NotFoundError,
    409: ConflictError,
    410: GoneError,
    429: ThrottledError,
}


class _Status(msgspec.Struct):
    """The part of ``v1.Status`` that people read."""

    message: str = ""


def failure_of(
    asked: str, status: int, reason: str, body: bytes, *, retry_after: str
) -> StatusError:
    """The error that an unsuccessful reply to ``asked`` is; ``retry_after`` is that header."""
    kind = _ERRORS.get(status, ServerError if status >= 500 else StatusError)
    return kind(
        asked,
        status=status,
        message=_message(body) or reason,
        retry_after=float(retry_after) if retry_after.isdecimal() else 0,
    )


def _message(body: bytes) -> str:
    """What ``v1.Status`` says, or the start of what came instead."""
    try:
        return msgspec.json.decode(body, type=_Status).message
    except (msgspec.DecodeError, UnicodeDecodeError):
        return body[:200].decode(errors="replace")
