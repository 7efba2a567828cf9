"""The login of the dashboard in detail: its form, its cookie, its limits, and its answers."""

import re
from collections.abc import Callable, Iterator
from urllib.parse import urlencode

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Mount, Route, WebSocketRoute
from starlette.testclient import TestClient
from starlette.websockets import WebSocket

from gpuinspect.web import access
from gpuinspect.web.access import COOKIE, SESSION_SECONDS, AuthMiddleware, Expiring
from gpukube.errors import InvalidReplyError

FORM = "application/x-www-form-urlencoded"
LIMIT = 16 * 1024
PROBLEM = "The API server refuses this token, or it may not list the pods of all namespaces."


class Reviewer:
    """A reviewer that accepts the token ``right`` and records all tokens."""

    def __init__(self) -> None:
        self.reviewed: list[str] = []
        self.error = ""

    def may_look(self, token: str) -> bool:
        """The token is the right one."""
        self.reviewed.append(token)
        if self.error:
            raise InvalidReplyError(self.error)
        return token == "right"


class Clock:
    """Seconds that a test sets."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def inside(request: Request) -> Response:
    """What is behind the gate."""
    return PlainTextResponse(f"inside {request.url.path}")


async def socket(connection: WebSocket) -> None:
    """A connection that is no HTTP request."""
    await connection.accept()
    await connection.send_text("open")
    await connection.close()


@pytest.fixture
def reviewer() -> Reviewer:
    """A reviewer that accepts one token."""
    return Reviewer()


@pytest.fixture
def clock() -> Clock:
    """Stands still."""
    return Clock()


@pytest.fixture
def browser(reviewer: Reviewer, clock: Clock) -> Iterator[TestClient]:
    """A browser in front of a gate; it follows no redirect by itself."""
    paths = ("/", "/healthz", "/healthz/more", "/readyz", "/events", "/pods", "/staticfile")
    routes = [
        *(Route(path, inside) for path in paths),
        Mount("/static", app=Starlette(routes=[Route("/style.css", inside)])),
        WebSocketRoute("/socket", socket),
    ]
    with TestClient(
        AuthMiddleware(Starlette(routes=routes), reviewer, clock), follow_redirects=False
    ) as one:
        yield one


def log_in(browser: TestClient, body: str) -> Response:
    """Post a form."""
    head = {"Content-Type": FORM}
    found: Response = browser.post("/login", content=body, headers=head)  # type: ignore[assignment]
    return found


def test_the_form_requests_a_token(browser: TestClient, reviewer: Reviewer) -> None:
    """A password field that no browser fills in, posted to where it came from."""
    answer = browser.get("/login")
    assert answer.status_code == 200
    assert "<title>Log in - gpushare</title>" in answer.text
    assert "<h1>Log in</h1>" in answer.text
    [form] = re.findall(r"<form.*?</form>", answer.text, re.DOTALL)
    assert form == (
        '<form method="post"><label>Token <input name="token" type="password" required '
        'autocomplete="off"/></label><button>Log in</button></form>'
    )
    assert "<p>kubectl create token NAME creates a token for a service account.</p>" in answer.text
    assert "alert" not in answer.text
    assert reviewer.reviewed == []


def test_a_wrong_token_is_answered_with_the_form_and_the_reason(browser: TestClient) -> None:
    """Screen readers announce it; the token itself is not repeated."""
    answer = browser.post("/login", data={"token": "secret-words"})
    assert answer.status_code == 401
    assert f'<p class="problem" role="alert">{PROBLEM}</p>' in answer.text
    assert '<form method="post">' in answer.text
    assert "secret-words" not in answer.text


def test_the_cookie_is_bound_to_the_site_and_to_its_hour(browser: TestClient) -> None:
    """Scripts cannot read it, other sites cannot send it, and it is no guessable text."""
    answer = browser.post("/login", data={"token": "right"})
    assert (answer.status_code, answer.headers["location"]) == (303, "/")
    value, *rest = answer.headers["set-cookie"].split("; ")
    assert re.fullmatch(rf"{COOKIE}=[\w-]{{43}}", value)
    attributes = {part.lower() for part in rest}
    assert attributes == {"httponly", f"max-age={SESSION_SECONDS}", "path=/", "samesite=strict"}
    browser.cookies.clear()
    again = browser.post("/login", data={"token": "right"})
    assert again.headers["set-cookie"].split("; ")[0] != value


@pytest.mark.parametrize(
    ("url", "forwarded", "secure"),
    [
        ("https://testserver/login", None, True),
        ("https://testserver/login", "http", True),
        ("http://testserver/login", "https", True),
        ("http://testserver/login", "http", False),
        ("http://testserver/login", None, False),
    ],
)
def test_a_session_that_began_under_tls_is_sent_under_tls_alone(
    browser: TestClient, url: str, forwarded: str | None, *, secure: bool
) -> None:
    """Either this process or the ingress before it has the certificate."""
    head = {"X-Forwarded-Proto": forwarded} if forwarded else {}
    answer = browser.post(url, data={"token": "right"}, headers=head)
    assert ("secure" in answer.headers["set-cookie"].lower().split("; ")) is secure


def test_the_longest_form_that_is_read(browser: TestClient, reviewer: Reviewer) -> None:
    """Sixteen KiB; what is longer is no token, and the reviewer is not called."""
    body = "token=".ljust(LIMIT, "x")
    assert log_in(browser, body).status_code == 401
    assert reviewer.reviewed == ["x" * (LIMIT - len("token="))]
    assert log_in(browser, body + "x").status_code == 401
    assert len(reviewer.reviewed) == 1


def test_a_form_that_comes_in_pieces_is_read_whole(browser: TestClient) -> None:
    """However the network cuts it."""
    pieces = iter([b"to", b"ken=ri", b"ght"])
    answer = browser.post("/login", content=pieces, headers={"Content-Type": FORM})
    assert answer.status_code == 303


@pytest.mark.parametrize("body", ["", "other=right", "token=", "token=%20%20", "right"])
def test_a_form_without_a_token_is_refused_without_a_review(
    browser: TestClient, reviewer: Reviewer, body: str
) -> None:
    """The API server is spared what cannot be a token."""
    assert log_in(browser, body).status_code == 401
    assert reviewer.reviewed == []


@pytest.mark.parametrize("body", ["token=right", "token=+right%0A", "token=right&token=wrong"])
def test_space_around_a_token_does_not_count(browser: TestClient, body: str) -> None:
    """It comes with what is pasted; of several fields the first one counts."""
    assert log_in(browser, body).status_code == 303


def test_bytes_that_are_no_text_are_no_token(browser: TestClient, reviewer: Reviewer) -> None:
    """They are replaced, not a failure of the page."""
    answer = browser.post("/login", content=b"token=\xff", headers={"Content-Type": FORM})
    assert answer.status_code == 401
    assert reviewer.reviewed == ["\ufffd"]


def test_a_session_is_as_good_as_a_token(browser: TestClient, reviewer: Reviewer) -> None:
    """Until it ends, without any further review."""
    browser.post("/login", data={"token": "right"})
    assert [browser.get(path).text for path in ("/", "/events")] == ["inside /", "inside /events"]
    assert reviewer.reviewed == ["right"]


def test_a_token_goes_before_a_session(browser: TestClient) -> None:
    """Who shows a wrong token is refused, whatever cookie comes with it."""
    browser.post("/login", data={"token": "right"})
    answer = browser.get("/", headers={"Authorization": "Bearer wrong"})
    assert (answer.status_code, answer.text) == (403, "forbidden")


@pytest.mark.parametrize("scheme", ["Bearer", "bearer", "BEARER"])
def test_the_scheme_is_read_in_any_case(browser: TestClient, scheme: str) -> None:
    """As HTTP requires."""
    assert browser.get("/", headers={"Authorization": f"{scheme} right"}).text == "inside /"


def test_programs_get_a_status_and_people_the_form(browser: TestClient) -> None:
    """A script cannot fill in a form; a redirect would look like a page to it."""
    for path, head in (("/events", {}), ("/", {"X-Part": "main"})):
        answer = browser.get(path, headers=head)
        assert (answer.status_code, answer.text) == (401, "log in")
    answer = browser.get("/pods")
    assert (answer.status_code, answer.headers["location"]) == (303, "/login")


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/static/style.css"])
def test_probes_and_styles_are_open(browser: TestClient, path: str, reviewer: Reviewer) -> None:
    """They show nothing of the cluster."""
    assert browser.get(path).status_code == 200
    assert reviewer.reviewed == []


def test_a_name_like_an_open_folder_is_not_open(browser: TestClient) -> None:
    """Only what is in the folder of static files is."""
    assert browser.get("/staticfile").status_code == 303


def test_what_is_no_request_is_passed_on(browser: TestClient) -> None:
    """There is no route for it; the application behind reports it."""
    with browser.websocket_connect("/socket") as connection:
        assert connection.receive_text() == "open"


@pytest.mark.parametrize("way", ["form", "bearer"])
def test_a_review_that_fails_is_reported(browser: TestClient, reviewer: Reviewer, way: str) -> None:
    """The person at the browser learns that the cluster does not answer."""
    reviewer.error = "no route to host"
    if way == "form":
        answer = browser.post("/login", data={"token": "right"})
    else:
        answer = browser.get("/", headers={"Authorization": "Bearer right"})
    assert answer.status_code == 503
    assert answer.text == "cannot review the token: no route to host"


def test_a_key_lasts_from_when_it_was_last_added(clock: Clock) -> None:
    """Adding it again renews it; a key that ended is not kept."""
    known = Expiring(60, clock)
    known.add("key")
    clock.now += 59.0
    known.add("key")
    clock.now += 59.0
    assert "key" in known
    clock.now += 1.0
    assert "key" not in known
    assert known._until == {}
    assert "other" not in known


def test_as_many_keys_as_the_limit_are_kept(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    """One more, and the first one goes."""
    monkeypatch.setattr(access, "MOST_SESSIONS", 2)
    known = Expiring(60, clock)
    for key in ("a", "b"):
        known.add(key)
    assert ["a" in known, "b" in known] == [True, True]
    known.add("c")
    assert ["a" in known, "b" in known, "c" in known] == [False, True, True]


def test_the_gate_remembers_by_its_own_clock(reviewer: Reviewer) -> None:
    """Without another clock it is the machine's, which never goes back."""
    app = Starlette(routes=[Route("/", inside)])
    with TestClient(AuthMiddleware(app, reviewer), follow_redirects=False) as client:
        for _ in range(2):
            assert client.get("/", headers={"Authorization": "Bearer right"}).status_code == 200
    assert reviewer.reviewed == ["right"]


def test_tokens_are_not_kept(reviewer: Reviewer, clock: Clock) -> None:
    """What is remembered of a token is a hash, from which it cannot be had."""
    app = Starlette(routes=[Route("/", inside)])
    gate = AuthMiddleware(app, reviewer, clock)
    with TestClient(gate, follow_redirects=False) as client:
        client.get("/", headers={"Authorization": "Bearer right"})
        client.post("/login", content=urlencode({"token": "right"}), headers={"Content-Type": FORM})
    kept: list[Callable[[], object]] = [lambda: gate._known._until, lambda: gate._sessions._until]
    for each in kept:
        found = each()
        assert len(found) == 1  # type: ignore[arg-type]
        assert "right" not in str(found)
