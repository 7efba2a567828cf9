"""A pod that may be evicted, and why the cluster refuses it."""

from collections.abc import Mapping
from http import HTTPStatus
from typing import Final, Protocol

from gpucore.units import PodUid
from gpucore.wire.pod.controllers import Controller
from gpukube.errors import (
    ConflictError,
    InvalidReplyError,
    KubeError,
    NotFoundError,
    ServerError,
    StatusError,
    ThrottledError,
    UnreachableError,
)

_UNPROCESSABLE: Final = 422
"""Status of a JSON patch whose test failed."""
_ALL_REQUESTS: Final[Mapping[int, str]] = {
    HTTPStatus.FORBIDDEN: "is forbidden: User ",
    HTTPStatus.BAD_REQUEST: "cannot be handled as a",
}
"""Words of messages that concern all such requests: no role allows them, or the API server does not
know the kind, such as ``policy/v1`` before 1.22. For each other message admission is the cause."""
_OVERLOADED: Final = "Too many requests"
"""Begin of the message with which an API server answers 429 to any request in an overload."""
UNCHECKED: Final = "PodDisruptionBudgets were not checked: {}"
"""Where no dry run of an eviction can be made, with the reason."""
_SEVERAL_BUDGETS: Final = "more than one PodDisruptionBudget"
"""Of the message with which the Eviction API answers 500 for such a pod, without a reason."""


class EvictablePod(Protocol):
    """A pod as it was read."""

    @property
    def uid(self) -> PodUid:
        """Its UID."""

    @property
    def namespace(self) -> str:
        """Its namespace."""

    @property
    def name(self) -> str:
        """Its name."""

    @property
    def resource_version(self) -> str:
        """Of the object that was read."""

    @property
    def controller(self) -> Controller | None:
        """What creates another pod in its place."""


def refusal(pod: EvictablePod, error: KubeError) -> str:
    """Why the cluster refused to evict or patch this pod; empty for a failure of another kind."""
    message = error.message if isinstance(error, StatusError) else ""
    if isinstance(error, ThrottledError) and not message.startswith(_OVERLOADED):
        return f"a PodDisruptionBudget keeps {pod}: {message}"
    if isinstance(error, ServerError) and _SEVERAL_BUDGETS in message:
        return f"several PodDisruptionBudgets select {pod}, so the Eviction API refuses it"
    changed = isinstance(error, StatusError) and error.status == _UNPROCESSABLE
    if changed or isinstance(error, ConflictError | NotFoundError):
        return f"{pod} has changed: {message}"
    return f"admission rejects the request for {pod}: {message}" if _not_admitted(error) else ""


def may_be_done(error: KubeError) -> bool:
    """Whether the API server may have carried out a request that failed: its reply is missing."""
    return isinstance(error, UnreachableError | ServerError | InvalidReplyError)


def _not_admitted(error: KubeError) -> bool:
    """An admission webhook, a policy or a ResourceQuota rejected this one request."""
    if not isinstance(error, StatusError) or error.status not in _ALL_REQUESTS:
        return False
    return _ALL_REQUESTS[error.status] not in error.message
