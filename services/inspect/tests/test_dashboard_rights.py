"""The chart's dashboard has the rights that it uses, and no others."""

import time
from pathlib import Path

import pytest
from charting import render
from chartrights import Authorizer, rights_of
from invoking import Run
from restricting import restrict
from starlette.testclient import TestClient
from starlette.types import ASGIApp
from test_readme_rights import AnyList

from gpuinspect.web.tokens import ACCESS_REVIEWS, TOKEN_REVIEWS

pytestmark = pytest.mark.slow

SECONDS = 60.0
SPACE = "gpushare"


def shown(browser: TestClient, path: str, pending: str = "") -> None:
    """Request a page until it is there and has no word that stands for what is still read."""
    deadline = time.monotonic() + SECONDS
    while True:
        answer = browser.get(path)
        if answer.status_code == 200 and not (pending and pending in answer.text):
            return
        assert time.monotonic() < deadline, answer.text


@pytest.mark.parametrize("more", [False, True])
def test_the_dashboard_has_the_rights_that_it_uses(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, more: bool
) -> None:
    """With the flags of its Deployment: pages, memory in use, sizes and the review of a token."""
    values = {
        "dashboard": {"enabled": True, "requireToken": more, "tls": {"enabled": False}},
        "unhealthyConfigMaps": more,
        "extender": {"mixHistory": more},
    }
    chart = render("1.36.0", values, namespace=SPACE)
    authorizer = Authorizer(rights_of(chart, "gpushare-dashboard"))
    visited: list[str] = []

    def visit(app: ASGIApp, *_: object) -> None:
        with TestClient(app, headers={"Authorization": "Bearer right"}) as browser:
            for path, pending in (("/readyz", ""), ("/", ""), ("/api/v1/sizes", '"reading":true')):
                shown(browser, path, pending)
                visited.append(path)

    monkeypatch.setattr("gpuinspect.commands.admin.dashboard.listen", visit)
    server = AnyList()
    server.reviews = {
        TOKEN_REVIEWS: {"status": {"authenticated": True, "user": {"username": "u"}}},
        ACCESS_REVIEWS: {"status": {"allowed": True}},
    }
    restrict(server, authorizer, monkeypatch)
    (container,) = dict(chart.pods())["dashboard"]["containers"]
    with server.serving():
        outcome = run(*container["args"], "--kubeconfig", str(server.kubeconfig(tmp_path)))
    assert visited[-1:] == ["/api/v1/sizes"], outcome.err
    assert authorizer.refused == set()
    assert authorizer.unused == set()
