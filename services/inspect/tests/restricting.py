"""An API server that permits what an account of the chart may do."""

from collections.abc import Callable
from typing import Any, Final

import pytest
from chartrights import Authorizer, ChartRight
from fakeapiserver import FakeApiServer

from gpuinspect.verify.rights import REVIEWS

DENIED: Final = 'that is forbidden: User "system:serviceaccount" has no role for it'
HANDLERS: Final = {"GET": "answer", "POST": "posted", "PATCH": "patched", "DELETE": "deleted"}


def restrict(
    server: FakeApiServer, authorizer: Authorizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Let the server answer 403 to all that the account may not do."""
    for method, name in HANDLERS.items():
        handler = _restricted(authorizer, method, getattr(server, name))
        monkeypatch.setattr(server, name, handler)


def _restricted(
    authorizer: Authorizer, method: str, handler: Callable[..., Any]
) -> Callable[..., Any]:
    def handle(target: str, *body: Any, **known: Any) -> Any:
        if target == REVIEWS:
            return 201, {"status": {"allowed": _reviewed(authorizer, body[0])}}
        if not authorizer.permits(method, target):
            return 403, {"message": DENIED}
        return handler(target, *body, **known)

    return handle


def _reviewed(authorizer: Authorizer, review: dict[str, Any]) -> bool:
    asked = review["spec"]["resourceAttributes"]
    resource = "/".join(filter(None, (asked["resource"], asked["subresource"])))
    right = ChartRight(asked["verb"], asked["group"], resource, asked["namespace"])
    return authorizer.has(right)
