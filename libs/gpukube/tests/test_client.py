"""The aiohttp client: failures by kind, credentials, lines."""

import asyncio
import socket
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import ExitStack, aclosing, asynccontextmanager, contextmanager
from itertools import pairwise
from pathlib import Path

import pytest
from aiohttp import web
from fakedeafserver import FakeDeafServer
from hypothesis import given, settings
from hypothesis import strategies as st
from kubeobjects import node

from gpukube import session
from gpukube.client import HttpKubeClient, Lines
from gpukube.config import TokenConfig
from gpukube.errors import (
    ConflictError,
    ForbiddenError,
    GoneError,
    KubeError,
    NotFoundError,
    ServerError,
    StatusError,
    ThrottledError,
    UnreachableError,
)
from gpukube.testing.answers import status
from gpukube.testing.apiserver import FakeApiServer, Fault
from gpukube.testing.certificates import make_certificate
from gpukube.testing.waiting import until


async def connect(cluster: FakeApiServer, folder: Path) -> HttpKubeClient:
    """A client of the fake."""
    path = folder / "kubeconfig"
    path.write_text(cluster.kubeconfig())
    return await HttpKubeClient.connect(path, user_agent="test")


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (401, ForbiddenError),
        (403, ForbiddenError),
        (422, StatusError),
        (404, NotFoundError),
        (409, ConflictError),
        (410, GoneError),
        (429, ThrottledError),
        (500, ServerError),
        (503, ServerError),
    ],
)
async def test_failures_are_distinguished_by_status(
    cluster: FakeApiServer, tmp_path: Path, code: int, kind: type[StatusError]
) -> None:
    """Each status is an error of its own kind, with the server's words and its Retry-After."""
    cluster.fail_next("get", lambda _: status(code, "words of a test", **{"Retry-After": "7"}))
    async with await connect(cluster, tmp_path) as api:
        with pytest.raises(kind, match=f"GET /api/v1/nodes/n: {code} words of a test") as caught:
            await api.get("/api/v1/nodes/n")
    assert type(caught.value) is kind
    assert caught.value.retry_after == 7


@pytest.mark.parametrize("header", ["61", "86400", "9" * 400])
async def test_a_server_cannot_stop_a_service_by_retry_after(
    cluster: FakeApiServer, tmp_path: Path, header: str
) -> None:
    """Retry-After is honoured up to a minute."""
    cluster.fail_next("get", lambda _: status(429, "busy", **{"Retry-After": header}))
    async with await connect(cluster, tmp_path) as api:
        with pytest.raises(ThrottledError) as caught:
            await api.get("/api/v1/nodes/n")
    assert caught.value.retry_after == 60


async def test_a_failure_that_is_no_status_object_is_shown_as_it_is(
    cluster: FakeApiServer, tmp_path: Path
) -> None:
    """A proxy in between answers in its own way; its text is what helps."""
    cluster.fail_next("get", lambda _: web.Response(status=502, text="<html>bad gateway"))
    async with await connect(cluster, tmp_path) as api:
        with pytest.raises(ServerError, match="<html>bad gateway"):
            await api.get("/api/v1/nodes/n")


async def test_nobody_there_is_unreachable(cluster: FakeApiServer, tmp_path: Path) -> None:
    """A refused connection is its own kind: whether anything was done is unknown."""
    cluster.url = "http://127.0.0.1:1"
    async with await connect(cluster, tmp_path) as api:
        with pytest.raises(UnreachableError, match="GET /api/v1/nodes"):
            await api.get("/api/v1/nodes")


async def test_expired_credentials_are_read_again(cluster: FakeApiServer, tmp_path: Path) -> None:
    """A 401 makes the next try use what the kubeconfig specifies now."""
    await cluster.put("nodes", node("n"))
    seen: list[str] = []

    def refuse(request: web.Request) -> web.Response:
        seen.append(request.headers["Authorization"])
        return status(401, "expired")

    cluster.fail_next("get", refuse)
    cluster.fail_next("get", lambda r: seen.append(r.headers["Authorization"]))
    async with await connect(cluster, tmp_path) as api:
        path = tmp_path / "kubeconfig"
        path.write_text(cluster.kubeconfig().replace('"token": "t"', '"token": "fresh"'))
        with pytest.raises(StatusError, match="expired"):
            await api.get("/api/v1/nodes/n")
        await api.get("/api/v1/nodes/n")
    assert seen == ["Bearer t", "Bearer fresh"]


async def listed(
    api: HttpKubeClient, params: Mapping[str, str], path: str = "/api/v1/nodes"
) -> bytes:
    """All bytes of a list."""
    return b"".join([chunk async for chunk in api.get_in_chunks(path, params=params)])


async def test_what_was_requested_ahead_is_taken_once(
    cluster: FakeApiServer, tmp_path: Path
) -> None:
    """The next list of the same takes that answer, or its failure; the one after is a request."""
    params = {"resourceVersion": "0"}
    await cluster.put("nodes", node("n"))
    async with await connect(cluster, tmp_path) as api:
        api.prefetch("/api/v1/nodes", params)
        await until("requested", lambda: cluster.lists("nodes") == 1)
        assert b'"n"' in await listed(api, params)
        assert cluster.lists("nodes") == 1
        assert b'"n"' in await listed(api, params)
        assert cluster.lists("nodes") == 2
        cluster.fail_next("list", lambda _: status(503, "starting"))
        api.prefetch("/api/v1/nodes", params)
        with pytest.raises(ServerError, match="GET /api/v1/nodes: 503 starting"):
            await listed(api, params)


async def test_what_was_requested_ahead_and_never_taken_ends_with_the_rest(
    cluster: FakeApiServer, tmp_path: Path
) -> None:
    """Neither a task nor a connection is left behind."""
    release = asyncio.Event()
    cluster.fail_next("list", lambda _: release.wait())
    async with await connect(cluster, tmp_path) as api:
        api.prefetch("/api/v1/nodes", {})
        await until("requested", lambda: cluster.lists("nodes") == 1)
    release.set()
    assert not [task for task in asyncio.all_tasks() if task.get_name().startswith("prefetch")]


def in_halves(release: asyncio.Event) -> Fault:
    """A reply whose second half comes once it is released."""

    async def reply(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b"begin")
        await release.wait()
        await response.write(b"end")
        return response

    return reply


async def test_a_list_is_read_as_it_arrives(cluster: FakeApiServer, tmp_path: Path) -> None:
    """Its beginning is there while the server still writes the rest, requested ahead or not."""
    release = asyncio.Event()

    for ahead in (False, True):
        release.clear()
        cluster.fail_next("list", in_halves(release))
        async with await connect(cluster, tmp_path) as api:
            if ahead:
                api.prefetch("/api/v1/nodes", {})
            chunks = api.get_in_chunks("/api/v1/nodes", params={})
            read = b""
            while read != b"begin":
                read += await anext(chunks)
            release.set()
            assert b"".join([chunk async for chunk in chunks]) == b"end"


@pytest.mark.parametrize("ahead", [False, True])
async def test_a_list_that_breaks_off_is_an_error(
    cluster: FakeApiServer, tmp_path: Path, ahead: bool
) -> None:
    """What arrived until then is no list."""

    async def broken(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b"begin")
        assert request.transport is not None
        request.transport.close()
        return response

    cluster.fail_next("list", broken)
    async with await connect(cluster, tmp_path) as api:
        if ahead:
            api.prefetch("/api/v1/nodes", {})
        with pytest.raises(UnreachableError, match="GET /api/v1/nodes"):
            await listed(api, {})


async def test_a_list_that_is_left_early_leaves_nothing_behind(
    cluster: FakeApiServer, tmp_path: Path
) -> None:
    """Where its beginning cannot be decoded, the rest is not read."""
    release = asyncio.Event()
    cluster.fail_next("list", in_halves(release))
    async with await connect(cluster, tmp_path) as api:
        api.prefetch("/api/v1/nodes", {})
        async with aclosing(api.get_in_chunks("/api/v1/nodes", params={})) as chunks:
            await anext(chunks)
        assert not [task for task in asyncio.all_tasks() if task.get_name().startswith("prefetch")]
        release.set()


async def test_a_silent_watch_is_an_error(cluster: FakeApiServer, tmp_path: Path) -> None:
    """Silence is distinguished from a clean end, which is none."""
    release = asyncio.Event()

    async def say_nothing(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await release.wait()
        return response

    cluster.fail_next("watch", say_nothing)
    async with await connect(cluster, tmp_path) as api:
        with pytest.raises(KubeError, match="watch /api/v1/nodes"):
            async for _ in api.watch("/api/v1/nodes", params={}, silence=0.1):
                pass
    release.set()


@asynccontextmanager
async def answering(
    begin: bytes = b"", rest: bytes = b""
) -> AsyncIterator[tuple[int, asyncio.Event]]:
    """A server that answers every request, with the rest once the event is set; its port."""
    go_on = asyncio.Event()

    ended: list[asyncio.Event] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        mine = asyncio.Event()
        ended.append(mine)
        await reader.readuntil(b"\r\n\r\n")
        writer.write(begin)
        await go_on.wait()
        writer.write(rest)
        await reader.read()
        writer.close()
        await writer.wait_closed()
        mine.set()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        yield server.sockets[0].getsockname()[1], go_on
        go_on.set()
        for one in ended:
            await one.wait()


async def test_a_body_that_is_broken_in_the_middle_ends_in_time(tmp_path: Path) -> None:
    """Of a chunk without a length the HTTP library neither reads on nor gives up."""
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    async with answering(head + b"3\r\n{}\n\r\n", b"zzz\r\nHTTP") as (port, go_on):
        config = TokenConfig(f"http://127.0.0.1:{port}", None, tmp_path / "none")
        client = HttpKubeClient(config, None, user_agent="test", seconds=0.2)
        async with client as api:

            async def watch() -> None:
                async for _ in api.watch("/x", params={}, silence=0.2):
                    go_on.set()

            async def read() -> None:
                async for chunk in api.get_in_chunks("/x", params={}):
                    if chunk:
                        go_on.set()

            with pytest.raises(UnreachableError, match="watch /x"):
                await watch()
            go_on.clear()
            with pytest.raises(UnreachableError, match="GET /x"):
                await read()


async def test_a_request_without_a_reply_ends_in_time(tmp_path: Path) -> None:
    """The server took the connection and stays silent."""
    async with answering() as (port, _), asyncio.timeout(60):
        config = TokenConfig(f"http://127.0.0.1:{port}", None, tmp_path / "none")
        async with HttpKubeClient(config, None, user_agent="test", seconds=0.2) as api:
            with pytest.raises(UnreachableError, match="GET /x"):
                await api.get("/x")
            with pytest.raises(UnreachableError, match="GET /x"):
                await listed(api, {}, "/x")
            with pytest.raises(UnreachableError, match="watch /x"):
                await anext(api.watch("/x", params={}, silence=0.2))


async def test_a_connection_that_nobody_takes_is_given_up_early(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Long before the request would end: another API server may take the next one."""
    monkeypatch.setattr(session, "CONNECT_SECONDS", 0.2)
    with full_server() as port:
        config = TokenConfig(f"http://127.0.0.1:{port}", None, tmp_path / "none")
        async with (
            asyncio.timeout(60),
            HttpKubeClient(config, None, user_agent="test", seconds=600) as api,
        ):
            with pytest.raises(UnreachableError, match="GET /x"):
                await api.get("/x")
            with pytest.raises(UnreachableError, match="watch /x"):
                await anext(api.watch("/x", params={}, silence=600))


@contextmanager
def full_server() -> Iterator[int]:
    """A port whose queue is full of connections that nobody accepts; Linux adds none to it."""
    with socket.create_server(("127.0.0.1", 0), backlog=0) as listener, ExitStack() as queued:
        for _ in range(4):
            one = queued.enter_context(socket.socket())
            one.setblocking(False)
            one.connect_ex(listener.getsockname())
        yield listener.getsockname()[1]


async def test_a_proxy_that_never_answers_is_given_up(tmp_path: Path) -> None:
    """It takes the connection, and the request for a tunnel."""
    async with answering() as (port, _):
        config = TokenConfig("https://10.0.0.1", None, tmp_path / "none")
        config.proxy = f"http://127.0.0.1:{port}"
        async with HttpKubeClient(config, None, user_agent="test", seconds=0.2) as api:
            with pytest.raises(UnreachableError, match="watch /x"):
                async for _ in api.watch("/x", params={}, silence=0.2):
                    pass


async def test_the_environments_proxy_is_used_unless_exempt(
    cluster: FakeApiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Loopback goes straight, everything else through the proxy."""
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    await cluster.put("nodes", node("n"))
    async with await connect(cluster, tmp_path) as api:
        assert await api.get("/api/v1/nodes/n")
    found = TokenConfig("http://192.0.2.1", None, tmp_path / "none")
    async with HttpKubeClient(found, None, user_agent="test") as api:
        with pytest.raises(UnreachableError, match=r"127\.0\.0\.1:1"):
            await api.get("/api/v1/nodes/n")


@pytest.mark.slow
@given(
    lines=st.lists(st.binary(min_size=1).filter(lambda b: b"\n" not in b), max_size=6),
    cuts=st.lists(st.integers(0, 60), max_size=6),
)
@settings(deadline=None)
def test_lines_survive_any_cut(lines: list[bytes], cuts: list[int]) -> None:
    """Wherever the network cuts a stream, the same lines come out."""
    stream = b"".join(line + b"\n" for line in lines)
    places = sorted({min(cut, len(stream)) for cut in cuts} | {0, len(stream)})
    received, found = Lines(), list[bytes]()
    for start, end in pairwise(places):
        found += received.add(stream[start:end])
    assert found == lines


def test_the_event_of_a_large_pod_takes_no_seconds() -> None:
    """An author of a pod of 1.5 MiB causes an event of six times that, which comes in pieces."""
    received, piece = Lines(), b"x" * 4096
    began = time.process_time()
    for _ in range(9 << 8):
        assert received.add(piece) == []
    [line] = received.add(b"\n")
    assert len(line) == 9 << 20
    assert time.process_time() - began < 2


async def test_a_watch_left_in_the_middle_is_hung_up_at_the_end(tmp_path: Path) -> None:
    """TLS would wait half a minute for the closing message of a server that sends none."""
    make_certificate(tmp_path, "localhost")
    async with FakeDeafServer(tmp_path) as server:
        (tmp_path / "kubeconfig").write_text(server.kubeconfig())
        async with await HttpKubeClient.connect(tmp_path / "kubeconfig", user_agent="test") as api:
            watch = api.watch("/api/v1/nodes", params={}, silence=30)
            assert await anext(watch) == []
            await watch.aclose()  # type: ignore[attr-defined]  # a generator, as it happens
        await asyncio.wait_for(server.hung_up.wait(), timeout=60)


async def test_a_refused_watch_makes_credentials_be_read_again(
    cluster: FakeApiServer, tmp_path: Path
) -> None:
    """A service may do nothing but watch for hours; its token ends all the same."""
    seen: list[str] = []

    def refuse(request: web.Request) -> web.Response:
        seen.append(request.headers["Authorization"])
        return status(401, "expired")

    cluster.fail_next("watch", refuse)
    cluster.fail_next("watch", refuse)
    async with await connect(cluster, tmp_path) as api:
        path = tmp_path / "kubeconfig"
        path.write_text(cluster.kubeconfig().replace('"token": "t"', '"token": "fresh"'))
        for _ in range(2):
            with pytest.raises(StatusError, match="expired"):
                async for _lines in api.watch("/api/v1/nodes", params={}, silence=60):
                    pass
    assert seen == ["Bearer t", "Bearer fresh"]


@pytest.mark.parametrize("code", [403, 500])
async def test_only_expired_credentials_are_read_again(
    cluster: FakeApiServer, tmp_path: Path, code: int
) -> None:
    """Another failure states nothing about the token, and the file is left alone."""
    seen: list[str] = []
    cluster.fail_next("get", lambda _: status(code, "no"))
    cluster.fail_next("get", lambda r: seen.append(r.headers["Authorization"]))
    async with await connect(cluster, tmp_path) as api:
        path = tmp_path / "kubeconfig"
        path.write_text(cluster.kubeconfig().replace('"token": "t"', '"token": "fresh"'))
        for _ in range(2):
            with pytest.raises(StatusError):
                await api.get("/api/v1/nodes/none")
    assert seen == ["Bearer t"]


class Heads:
    """An API server that keeps the heads of requests, and replies with an empty object."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, dict[str, str]]] = []
        self.status = 200

    async def __call__(self, request: web.BaseRequest) -> web.Response:
        self.seen.append((request.method, dict(request.headers)))
        await request.read()
        status = 200 if request.path == "/elsewhere" else self.status
        return web.json_response({}, status=status, headers={"Location": "/elsewhere"})


@asynccontextmanager
async def served(heads: Heads) -> AsyncIterator[str]:
    """Its address."""
    runner = web.ServerRunner(web.Server(heads))
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    await runner.cleanup()


async def test_every_request_has_its_sender_and_content_type(
    cluster: FakeApiServer, tmp_path: Path
) -> None:
    """Credentials, a name for the audit log, no compression, and the kind of patch."""
    heads = Heads()
    async with served(heads) as cluster.url, await connect(cluster, tmp_path) as api:
        await api.get("/x")
        await api.post("/x", {"a": 1})
        await api.patch("/x", b"{}")
        await api.delete("/x")
        api.prefetch("/y", {})
        async for _chunk in api.get_in_chunks("/y", params={}):
            pass
        async for _lines in api.watch("/x", params={}, silence=60):
            pass
    assert [method for method, _ in heads.seen] == ["GET", "POST", "PATCH", "DELETE", "GET", "GET"]
    for _, head in heads.seen:
        assert (head["Authorization"], head["User-Agent"]) == ("Bearer t", "test")
        assert (head["Accept"], head["Accept-Encoding"]) == ("application/json", "identity")
    kinds = [head.get("Content-Type") for _, head in heads.seen]
    assert kinds[1:3] == ["application/json", "application/merge-patch+json"]


@pytest.mark.parametrize("code", [101, 300, 304, 307, 399])
async def test_no_other_status_is_success(
    cluster: FakeApiServer, tmp_path: Path, code: int
) -> None:
    """A redirect or a change of protocol is what a proxy sends, and no object."""
    heads = Heads()
    heads.status = code
    async with served(heads) as cluster.url, await connect(cluster, tmp_path) as api:
        with pytest.raises(StatusError):
            await api.post("/x", b"{}")
        with pytest.raises(StatusError):
            await api.get("/x")
        with pytest.raises(StatusError):
            async for _lines in api.watch("/x", params={}, silence=60):
                pass
