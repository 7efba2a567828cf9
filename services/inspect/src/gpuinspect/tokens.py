"""What the API server says about somebody's token."""

from collections.abc import Mapping
from typing import Any, Final, Protocol

import msgspec

from gpuinspect.errors import ClusterError

TOKEN_REVIEWS: Final = "/apis/authentication.k8s.io/v1/tokenreviews"  # noqa: S105 - a path
ACCESS_REVIEWS: Final = "/apis/authorization.k8s.io/v1/subjectaccessreviews"


class _User(msgspec.Struct):
    username: str = ""
    uid: str = ""
    groups: list[str] | None = None
    extra: dict[str, list[str]] | None = None


class _Status(msgspec.Struct):
    authenticated: bool = False
    allowed: bool = False
    user: _User = msgspec.field(default_factory=_User)


class _Review(msgspec.Struct):
    status: _Status = msgspec.field(default_factory=_Status)


class Reviews(Protocol):
    """The part of the API server that answers reviews."""

    def ask(self, path: str, review: Mapping[str, Any]) -> bytes:
        """The answer to a review that is posted to ``path``."""
        ...


class TokenReviewer:
    """Asks whether a token is genuine and its user may list the pods of all namespaces."""

    def __init__(self, kube: Reviews) -> None:
        self._kube = kube

    def may_look(self, token: str) -> bool:
        """The token is known and its user may list pods everywhere.

        Raises:
            ClusterError: the API server does not answer, or this service may not ask it.
        """
        review = self._asked(TOKEN_REVIEWS, "authentication", "TokenReview", {"token": token})
        return review.authenticated and self._may_list(review.user)

    def _may_list(self, user: _User) -> bool:
        spec = {
            "user": user.username,
            "uid": user.uid,
            "groups": user.groups or [],
            "extra": user.extra or {},
            "resourceAttributes": {"verb": "list", "resource": "pods"},
        }
        return self._asked(ACCESS_REVIEWS, "authorization", "SubjectAccessReview", spec).allowed

    def _asked(self, path: str, group: str, kind: str, spec: dict[str, Any]) -> _Status:
        body = {"apiVersion": f"{group}.k8s.io/v1", "kind": kind, "spec": spec}
        try:
            return msgspec.json.decode(self._kube.ask(path, body), type=_Review).status
        except msgspec.MsgspecError as error:
            raise ClusterError(f"the answer to a {kind} cannot be read: {error}") from error
