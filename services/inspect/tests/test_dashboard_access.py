"""Who may look at the page."""

import asyncio
import json
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import httpx2
import pytest
from drawncluster import FakeCluster, Gpu
from fakeapiserver import FakeApiServer
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route
from starlette.testclient import TestClient

from gpucore.wire.names import DEFAULT_NAMES
from gpuinspect.cluster.snapshots import decode
from gpuinspect.web.access import (
    COOKIE,
    MOST_SESSIONS,
    REMEMBERED_SECONDS,
    REVIEWS_AT_ONCE,
    SESSION_SECONDS,
    AuthMiddleware,
    Expiring,
)
from gpuinspect.web.app import make_app
from gpuinspect.web.feed import Feed
from gpuinspect.web.tokens import ACCESS_REVIEWS, TOKEN_REVIEWS, TokenReviewer
from gpukube.blocking import BlockingClient
from gpukube.errors import InvalidReplyError, UnreachableError

pytestmark = pytest.mark.slow

SECONDS = 20.0
"""Longest time that a test waits for something."""


class FakeReviewer:
    """A reviewer that accepts one token and counts its calls."""

    def __init__(self) -> None:
        self.reviewed = 0
        self.down = False
        self.right = "right"

    def may_look(self, token: str) -> bool:
        """The token is the right one."""
        self.reviewed += 1
        if self.down:
            raise UnreachableError("POST /tokenreviews: refused")
        return token == self.right


@pytest.fixture
def reviewer() -> FakeReviewer:
    """A reviewer that accepts the token ``right``."""
    return FakeReviewer()


@pytest.fixture
def browser(reviewer: FakeReviewer) -> Iterator[TestClient]:
    """A browser in front of a gated page; it follows no redirect by itself."""
    raw = FakeCluster().node("n", gpus=[Gpu(15)]).json().encode()
    feed = Feed(lambda: decode(raw), DEFAULT_NAMES, interval_seconds=3600)
    asyncio.run(feed.refresh())
    client = TestClient(make_app(feed, reviewer), follow_redirects=False)
    yield client
    client.close()


@pytest.mark.parametrize("path", ["/", "/nodes/n", "/pods", "/whatif"])
def test_strangers_are_sent_to_the_login(browser: TestClient, path: str) -> None:
    """Nothing is shown without a token."""
    answer = browser.get(path)
    assert (answer.status_code, answer.headers["location"]) == (303, "/login")


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/freshz", "/static/style.css", "/login"])
def test_probes_and_the_login_are_open(browser: TestClient, path: str) -> None:
    """A probe has no token, and the login must look like something."""
    assert browser.get(path).status_code == 200


class Waiting:
    """A reviewer whose API server does not respond yet; ``most`` reviews ran at once."""

    def __init__(self) -> None:
        self.started, self.respond = threading.Semaphore(0), threading.Event()
        self.running = self.most = 0
        self._lock = threading.Lock()

    def may_look(self, token: str) -> bool:
        """Refuse it, later."""
        del token
        with self._lock:
            self.running += 1
            self.most = max(self.most, self.running)
        self.started.release()
        assert self.respond.wait(SECONDS)
        with self._lock:
            self.running -= 1
        return False


@pytest.mark.parametrize("probe", ["/healthz", "/readyz", "/freshz"])
async def test_a_flood_of_tokens_delays_no_probe(probe: str) -> None:
    """A few tokens are reviewed at once, whoever sends them; kubelet has its answer meanwhile."""
    raw = FakeCluster().node("n", gpus=[Gpu(15)]).json().encode()
    feed = Feed(lambda: decode(raw), DEFAULT_NAMES, interval_seconds=3600)
    await feed.refresh()
    reviewer = Waiting()
    transport = httpx2.ASGITransport(make_app(feed, reviewer))
    async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as client:
        logins = [
            asyncio.create_task(client.post("/login", data={"token": f"x{number}"}))
            for number in range(60)
        ]
        try:
            for _ in range(REVIEWS_AT_ONCE):
                assert await asyncio.to_thread(reviewer.started.acquire, timeout=SECONDS)
            answer = await asyncio.wait_for(client.get(probe), SECONDS)
        finally:
            reviewer.respond.set()
        refused = await asyncio.gather(*logins)
    assert answer.status_code == 200
    assert {each.status_code for each in refused} == {401}
    assert reviewer.most == REVIEWS_AT_ONCE


def test_the_stream_is_closed_to_strangers(browser: TestClient) -> None:
    """Scripts get a status, not a form."""
    assert browser.get("/events").status_code == 401
    assert browser.get("/", headers={"X-Part": "main"}).status_code == 401


def test_a_good_token_opens_a_session(browser: TestClient) -> None:
    """The cookie is no token, cannot be read by scripts, and is for this site alone."""
    answer = browser.post("/login", data={"token": " right "})
    assert (answer.status_code, answer.headers["location"]) == (303, "/")
    cookie = answer.headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=strict" in cookie
    assert "right" not in cookie
    assert "0/15" in browser.get("/").text


@pytest.mark.parametrize(("scheme", "secure"), [("https", True), ("http", False)])
def test_behind_tls_the_session_stays_there(browser: TestClient, scheme: str, secure: bool) -> None:
    """An ingress forwards how it was reached; such a session is sent under TLS alone."""
    head = {"X-Forwarded-Proto": scheme}
    answer = browser.post("/login", data={"token": "right"}, headers=head)
    assert ("; secure" in answer.headers["set-cookie"].lower()) is secure


@pytest.mark.parametrize("token", ["", "wrong", "x" * 100_000])
def test_a_bad_token_opens_nothing(browser: TestClient, token: str) -> None:
    """The form comes again and states why."""
    answer = browser.post("/login", data={"token": token})
    assert (answer.status_code, COOKIE in answer.headers.get("set-cookie", "")) == (401, False)
    assert browser.get("/").status_code == 303


def test_programs_show_their_token(browser: TestClient, reviewer: FakeReviewer) -> None:
    """A bearer token is reviewed once a minute, and a wrong one is refused."""
    for _ in range(3):
        assert browser.get("/", headers={"Authorization": "Bearer right"}).status_code == 200
    assert reviewer.reviewed == 1
    assert browser.get("/", headers={"Authorization": "Bearer wrong"}).status_code == 403


@pytest.mark.parametrize("way", ["form", "bearer"])
def test_a_refused_token_is_refused_again(
    browser: TestClient, reviewer: FakeReviewer, way: str
) -> None:
    """A refusal is never remembered as a yes, by form or bearer, and each try is reviewed."""
    for tries in (1, 2, 3):
        if way == "form":
            assert browser.post("/login", data={"token": "wrong"}).status_code == 401
        else:
            head = {"Authorization": "Bearer wrong"}
            assert browser.get("/", headers=head).status_code == 403
        assert reviewer.reviewed == tries
    assert browser.get("/").status_code == 303


def test_a_failed_review_is_not_remembered(browser: TestClient, reviewer: FakeReviewer) -> None:
    """A token that could not be reviewed is reviewed again."""
    reviewer.down = True
    head = {"Authorization": "Bearer wrong"}
    assert browser.get("/", headers=head).status_code == 503
    reviewer.down = False
    assert browser.get("/", headers=head).status_code == 403


def test_an_empty_token_is_refused_without_a_review(
    browser: TestClient, reviewer: FakeReviewer
) -> None:
    """Nothing that is no token goes to the API server."""
    assert browser.get("/", headers={"Authorization": "Bearer "}).status_code == 403
    assert browser.get("/", headers={"Authorization": "Basic right"}).status_code == 303
    assert reviewer.reviewed == 0


def gate(reviewer: FakeReviewer, clock: Callable[[], float]) -> TestClient:
    """A browser in front of a gate with this clock; behind it is one page."""
    app = Starlette(routes=[Route("/", lambda _request: PlainTextResponse("inside"))])
    return TestClient(AuthMiddleware(app, reviewer, clock), follow_redirects=False)


def test_a_good_token_is_reviewed_again_after_a_minute(reviewer: FakeReviewer) -> None:
    """A token that was withdrawn opens nothing once its minute is over."""
    now = [0.0]
    head = {"Authorization": "Bearer right"}
    with gate(reviewer, lambda: now[0]) as client:
        assert client.get("/", headers=head).text == "inside"
        now[0] = REMEMBERED_SECONDS - 1.0
        assert client.get("/", headers=head).text == "inside"
        assert reviewer.reviewed == 1
        now[0] = float(REMEMBERED_SECONDS)
        reviewer.right = "another"
        assert client.get("/", headers=head).status_code == 403


def test_a_session_ends_after_its_time(reviewer: FakeReviewer) -> None:
    """A session outlives the minute of its token, and ends with its hour."""
    now = [0.0]
    with gate(reviewer, lambda: now[0]) as client:
        client.post("/login", data={"token": "right"})
        now[0] = SESSION_SECONDS - 1.0
        assert client.get("/").text == "inside"
        now[0] = float(SESSION_SECONDS)
        assert client.get("/").status_code == 303


def test_the_oldest_session_goes_when_there_are_too_many() -> None:
    """The number of keys is bounded; the newest are kept."""
    known = Expiring(60, lambda: 0.0)
    for number in range(MOST_SESSIONS + 1):
        known.add(str(number))
    assert ("0" in known, "1" in known, str(MOST_SESSIONS) in known) == (False, True, True)


def test_an_invented_session_is_none(browser: TestClient) -> None:
    """A cookie that was never given out opens nothing."""
    assert browser.get("/", headers={"Cookie": f"{COOKIE}=invented"}).status_code == 303


def test_without_an_api_server_nobody_gets_in(browser: TestClient, reviewer: FakeReviewer) -> None:
    """A review that cannot be made is a failure of ours, not a yes."""
    reviewer.down = True
    assert browser.post("/login", data={"token": "right"}).status_code == 503


def test_what_is_remembered_expires() -> None:
    """After its time a key is as good as never added."""
    now = [0.0]
    known = Expiring(REMEMBERED_SECONDS, lambda: now[0])
    known.add("key")
    assert "key" in known
    now[0] = float(REMEMBERED_SECONDS)
    assert "key" not in known


def review(*, authenticated: bool, allowed: bool) -> dict[str, dict[str, Any]]:
    """Answers of an API server to both reviews."""
    user = {"username": "ann", "groups": ["dev"]}
    return {
        TOKEN_REVIEWS: {"status": {"authenticated": authenticated, "user": user}},
        ACCESS_REVIEWS: {"status": {"allowed": allowed}},
    }


class Reviews:
    """An API server that answers reviews from a table, and keeps what was sent."""

    def __init__(self, answers: dict[str, bytes]) -> None:
        self.answers = answers
        self.sent: list[tuple[str, Mapping[str, Any]]] = []

    def post(self, path: str, body: Mapping[str, Any]) -> bytes:
        """The answer of the table."""
        self.sent.append((path, body))
        return self.answers[path]


USER = {"username": "ann", "uid": "7", "groups": ["dev"], "extra": {"scopes": ["a", "b"]}}


def reviews(*, authenticated: Any = True, allowed: Any = True, user: Any = USER) -> Reviews:
    """Answers to both reviews."""
    token = {"status": {"authenticated": authenticated, "user": user}}
    access = {"status": {"allowed": allowed}}
    return Reviews(
        {TOKEN_REVIEWS: json.dumps(token).encode(), ACCESS_REVIEWS: json.dumps(access).encode()}
    )


def test_reviews_are_those_of_the_api() -> None:
    """The token goes into a TokenReview; all that it reports of its user into the second review."""
    server = reviews()
    assert TokenReviewer(server).may_look("a-token")
    assert server.sent == [
        (
            TOKEN_REVIEWS,
            {
                "apiVersion": "authentication.k8s.io/v1",
                "kind": "TokenReview",
                "spec": {"token": "a-token"},
            },
        ),
        (
            ACCESS_REVIEWS,
            {
                "apiVersion": "authorization.k8s.io/v1",
                "kind": "SubjectAccessReview",
                "spec": {
                    "user": "ann",
                    "uid": "7",
                    "groups": ["dev"],
                    "extra": {"scopes": ["a", "b"]},
                    "resourceAttributes": {"verb": "list", "resource": "pods"},
                },
            },
        ),
    ]


def test_a_token_that_is_not_genuine_gets_no_second_review() -> None:
    """An unauthenticated token is refused without a SubjectAccessReview."""
    server = reviews(authenticated=False)
    assert not TokenReviewer(server).may_look("a-token")
    assert [path for path, _ in server.sent] == [TOKEN_REVIEWS]


def test_an_answer_without_a_status_is_a_no() -> None:
    """A review without a status is refused."""
    server = Reviews({TOKEN_REVIEWS: b"{}", ACCESS_REVIEWS: b"{}"})
    assert not TokenReviewer(server).may_look("a-token")
    server.answers[TOKEN_REVIEWS] = b'{"status": {"authenticated": true}}'
    assert not TokenReviewer(server).may_look("a-token")


@pytest.mark.parametrize("path", [TOKEN_REVIEWS, ACCESS_REVIEWS])
def test_an_answer_that_cannot_be_read_is_an_error(path: str) -> None:
    """Bytes that are no review are no yes and no no."""
    server = reviews()
    server.answers[path] = b"<html>"
    with pytest.raises(InvalidReplyError, match="cannot be parsed"):
        TokenReviewer(server).may_look("a-token")


@pytest.mark.parametrize("authenticated", [True, False])
@pytest.mark.parametrize("allowed", [True, False])
def test_the_api_server_is_queried(tmp_path: Path, authenticated: bool, allowed: bool) -> None:
    """Only a token that is genuine and whose user may list pods everywhere is good."""
    with FakeApiServer({}).serving() as server:
        server.reviews = review(authenticated=authenticated, allowed=allowed)
        config = server.kubeconfig(tmp_path)
        with BlockingClient.connect(config, user_agent="test", seconds=60) as kube:
            assert TokenReviewer(kube).may_look("t") is (authenticated and allowed)
        spec = server.bodies[-1]["spec"]
    if authenticated:
        assert (spec["user"], spec["groups"]) == ("ann", ["dev"])
        assert spec["resourceAttributes"] == {"verb": "list", "resource": "pods"}
