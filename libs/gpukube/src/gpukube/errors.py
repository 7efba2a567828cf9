"""Errors between this process and the API server, by what they mean to a caller.

The text of every error names the request::

    KubeError
    ├── UnreachableError        no reply: refused, reset, timed out; the request may have been done
    ├── SilentWatchError        a watch delivered nothing
    ├── VersionWentBackError    the server has an older resource version than before
    ├── InvalidReplyError       a success whose body is not what the API defines
    └── StatusError             a reply other than success
        ├── ForbiddenError      401 and 403
        ├── NotFoundError       404
        ├── ConflictError       409
        ├── GoneError           410, the resource version is too old
        ├── ThrottledError      429, has ``retry_after``; the request was not done
        └── ServerError         5xx; the request may have been done

ConfigError is separate: no API server is configured.
"""

from collections.abc import Mapping
from typing import Final, Self

import msgspec

RETRY_AFTER_LIMIT_SECONDS: Final = 60.0
"""Longest ``Retry-After`` in seconds that is honoured; a longer one would stop a service."""
GONE: Final = 410
GATEWAY_TIMEOUT: Final = 504
TOO_LARGE: Final = "ResourceVersionTooLarge"
"""Cause in a Status: the server has not reached this resource version, e.g. after a restore."""


class ConfigError(Exception):
    """No API server is configured, or the configuration cannot be read."""


class KubeError(Exception):
    """The API server did not do what was requested, or did not confirm it."""

    @property
    def needs_list(self) -> bool:
        """A watch cannot go on from its resource version; only a new list can."""
        return False

    @property
    def shows_restore(self) -> bool:
        """The objects that were seen are not those that the server has."""
        return False


class UnreachableError(KubeError):
    """There was no reply; whether the request was carried out is unknown."""

    @classmethod
    def because(cls, request: str, error: Exception) -> Self:
        """The error of a request; timeouts have no text of their own."""
        return cls(f"{request}: {str(error) or type(error).__name__}")


class SilentWatchError(KubeError):
    """A watch delivered nothing at all; it may wait for a version that the server lost."""

    needs_list = True


class VersionWentBackError(KubeError):
    """The API server has an older resource version than one that it sent before."""

    needs_list = True
    shows_restore = True


class InvalidReplyError(KubeError):
    """The body of a reply cannot be read."""


class StatusError(KubeError):
    """The API server replied with a failure.

    Attributes:
        status: HTTP status.
        retry_after: seconds to wait before a retry; 0 where the server sets none.
        version_too_large: the server has not reached the resource version of the request.
        continue_token: of the rest of a list whose own token has expired; empty for none.
    """

    def __init__(
        self,
        request: str,
        *,
        status: int,
        message: str,
        retry_after: float = 0,
        version_too_large: bool = False,
        continue_token: str = "",
    ) -> None:
        super().__init__(f"{request}: {status} {message}")
        self.status = status
        self.message = message
        self.retry_after = retry_after
        self.version_too_large = version_too_large
        self.continue_token = continue_token

    @property
    def needs_list(self) -> bool:
        return self.version_too_large or self.status in {GONE, GATEWAY_TIMEOUT}

    @property
    def shows_restore(self) -> bool:
        return self.version_too_large


class ForbiddenError(StatusError):
    """401 or 403: the credentials do not allow the request."""


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
    401: ForbiddenError,
    403: ForbiddenError,
    404: NotFoundError,
    409: ConflictError,
    GONE: GoneError,
    429: ThrottledError,
}


class _Cause(msgspec.Struct):
    reason: str | None = None


class _Details(msgspec.Struct):
    causes: list[_Cause] | None = None


class ListMetadata(msgspec.Struct):
    """Where the next page of a list begins, also in an error that names a fresh place."""

    continue_token: str | None = msgspec.field(name="continue", default=None)


class _Status(msgspec.Struct):
    """The part of ``v1.Status`` that decides and that people read."""

    code: int | None = None
    message: str | None = None
    details: _Details | None = None
    metadata: ListMetadata | None = None

    @property
    def version_too_large(self) -> bool:
        causes = (self.details.causes or []) if self.details else []
        return any(cause.reason == TOO_LARGE for cause in causes)


class _ErrorEvent(msgspec.Struct):
    object: _Status


def failure_of(
    request: str, status: int, reason: str, body: bytes, *, retry_after: str
) -> StatusError:
    """The error for an unsuccessful reply; ``retry_after`` is the header of that name."""
    found = _status_of(body)
    return _class_of(status)(
        request,
        status=status,
        message=found.message or reason,
        retry_after=min(float(retry_after), RETRY_AFTER_LIMIT_SECONDS)
        if retry_after.isdecimal()
        else 0,
        version_too_large=found.version_too_large,
        continue_token=(found.metadata and found.metadata.continue_token) or "",
    )


def failure_in_watch(line: bytes) -> StatusError:
    """The error for an ERROR event, which carries a ``v1.Status``."""
    try:
        found = msgspec.json.decode(line, type=_ErrorEvent).object
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        found = _Status(message=line[:200].decode(errors="replace"))
    status = found.code or 0
    return _class_of(status)(
        "inside the watch",
        status=status,
        message=found.message or "",
        version_too_large=found.version_too_large,
    )


def _class_of(status: int) -> type[StatusError]:
    return _ERRORS.get(status, ServerError if status >= 500 else StatusError)


def _status_of(body: bytes) -> _Status:
    """The ``v1.Status``; with the start of the body as its message where it is none."""
    try:
        return msgspec.json.decode(body, type=_Status)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _Status(message=body[:200].decode(errors="replace").strip())
