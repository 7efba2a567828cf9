"""Verifies a user's token with the API server."""

from typing import TYPE_CHECKING, Any, Final

import msgspec

from gpukube.errors import InvalidReplyError

if TYPE_CHECKING:  # the import takes a while
    from gpukube.blocking import BlockingClient

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


class TokenReviewer:
    """Checks that a token is valid and its user may list the pods of all namespaces."""

    def __init__(self, kube: "BlockingClient") -> None:
        self._kube = kube

    def may_look(self, token: str) -> bool:
        """Whether the token is valid and its user may list pods in all namespaces.

        Raises:
            KubeError: the API server does not respond, or this service lacks the right to check.
        """
        review = self._review(TOKEN_REVIEWS, "authentication", "TokenReview", {"token": token})
        return review.authenticated and self._may_list(review.user)

    def _may_list(self, user: _User) -> bool:
        spec = {
            "user": user.username,
            "uid": user.uid,
            "groups": user.groups or [],
            "extra": user.extra or {},
            "resourceAttributes": {"verb": "list", "resource": "pods"},
        }
        return self._review(ACCESS_REVIEWS, "authorization", "SubjectAccessReview", spec).allowed

    def _review(self, path: str, group: str, kind: str, spec: dict[str, Any]) -> _Status:
        body = {"apiVersion": f"{group}.k8s.io/v1", "kind": kind, "spec": spec}
        try:
            return msgspec.json.decode(self._kube.post(path, body), type=_Review).status
        except msgspec.MsgspecError as error:
            raise InvalidReplyError(f"the answer to a {kind} cannot be parsed: {error}") from error
