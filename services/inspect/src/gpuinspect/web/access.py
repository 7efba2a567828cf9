"""Access to the dashboard: users with a valid token who may list pods in all namespaces.

The dashboard shows pods of all namespaces, so it requires that right. Tokens are never stored: a
browser gets a random session instead, and the API server's answer for a token is cached for a
minute under the token's hash.
"""

import asyncio
import hashlib
import secrets
import time
from collections.abc import Callable
from typing import Final
from urllib.parse import parse_qs

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from gpuinspect.errors import sentence
from gpuinspect.web.pages.frame import page
from gpuinspect.web.rendering import View
from gpuinspect.web.tokens import TokenReviewer
from gpukube.errors import KubeError

COOKIE: Final = "gpushare_session"
SESSION_SECONDS: Final = 3600
REMEMBERED_SECONDS: Final = 60
MOST_SESSIONS: Final = 10_000
REVIEWS_AT_ONCE: Final = 8
"""Anybody can send tokens; pages need threads too, and the API server has other work."""
REFUSED: Final = "The API server refuses this token, or it may not list the pods of all namespaces."
_OPEN: Final = ("/healthz", "/readyz", "/freshz", "/static/")
_PROGRAMS: Final = ("/events", "/api/")
"""Paths of programs, which get status 401 in place of a redirect to the form."""
_BODY_LIMIT_BYTES: Final = 16 << 10  # bytes of a login form; tokens take a few


class Expiring:
    """Keys that are valid for a while; the oldest go when there are too many."""

    def __init__(self, seconds: float, clock: Callable[[], float]) -> None:
        self._seconds = seconds
        self._clock = clock
        self._until: dict[str, float] = {}

    def add(self, key: str) -> None:
        """Make ``key`` valid from now on."""
        while len(self._until) >= MOST_SESSIONS:
            del self._until[next(iter(self._until))]
        self._until[key] = self._clock() + self._seconds

    def __contains__(self, key: str) -> bool:
        """``key`` is valid now."""
        until = self._until.get(key)
        if until is not None and until <= self._clock():
            del self._until[key]
            return False
        return until is not None


class AuthMiddleware:
    """Forwards requests with a valid token or session; redirects others to the login page."""

    def __init__(
        self, app: ASGIApp, reviewer: TokenReviewer, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._app = app
        self._reviewer = reviewer
        self._sessions = Expiring(SESSION_SECONDS, clock)
        self._known = Expiring(REMEMBERED_SECONDS, clock)
        self._reviews = asyncio.Semaphore(REVIEWS_AT_ONCE)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"].startswith(_OPEN):
            await self._app(scope, receive, send)
            return
        request = Request(scope, receive)
        try:
            answer = await self._answer(request)
        except KubeError as error:
            answer = PlainTextResponse(
                f"cannot review the token: {sentence(error)}", status_code=503
            )
        await (answer or self._app)(scope, receive, send)

    async def _answer(self, request: Request) -> Response | None:
        """``None`` lets the request through."""
        if request.url.path == "/login":
            return await self._login(request)
        token = _bearer_token(request)
        if token is not None:
            allowed = await self._allowed(token)
            return None if allowed else PlainTextResponse("forbidden", status_code=403)
        if request.cookies.get(COOKIE, "") in self._sessions:
            return None
        if request.url.path.startswith(_PROGRAMS) or "x-part" in request.headers:
            return PlainTextResponse("log in", status_code=401)
        return RedirectResponse("/login", status_code=303)

    async def _login(self, request: Request) -> Response:
        if request.method != "POST":
            return _form("")
        if not await self._allowed(await _posted_token(request)):
            return _form(REFUSED)
        session = secrets.token_urlsafe(32)
        self._sessions.add(session)
        answer = RedirectResponse("/", status_code=303)
        answer.set_cookie(
            COOKIE,
            session,
            max_age=SESSION_SECONDS,
            httponly=True,
            samesite="strict",
            secure="https" in {request.url.scheme, request.headers.get("x-forwarded-proto")},
        )
        return answer

    async def _allowed(self, token: str) -> bool:
        digest = _digest(token)
        if digest in self._known:
            return True
        if not token or not await self._reviewed(token):
            return False
        self._known.add(digest)
        return True

    async def _reviewed(self, token: str) -> bool:
        async with self._reviews:
            return await run_in_threadpool(self._reviewer.may_look, token)


def session_of(request: Request) -> str:
    """The session of a request, or the hash of its token; empty without one."""
    token = _bearer_token(request)
    return request.cookies.get(COOKIE, "") if token is None else _digest(token)


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()


def _bearer_token(request: Request) -> str | None:
    """The token of the header ``Authorization``; ``None`` where it has none."""
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    return token if scheme.lower() == "bearer" else None


async def _posted_token(request: Request) -> str:
    """The field of the form; empty where the body is no form or too long to be one."""
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > _BODY_LIMIT_BYTES:
            return ""
    fields = parse_qs(body.decode("ascii", "replace"))
    return fields.get("token", [""])[0].strip()


def _form(problem: str) -> Response:
    main = View("login.html", {"refused": problem})
    text = page("Log in", main, frame=None, here="", revision="")
    return HTMLResponse(text, status_code=401 if problem else 200)
