"""The Kubernetes API server as bytes, which the narrow decoders of ``gpucore.wire`` read.

Where it is and which credentials it wants is for :mod:`gpuextender.access`. Nothing is retried
here: callers know what a failure means to them.

Failures are those of :mod:`gpuextender.kubeerrors`.
"""

import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final, Protocol, Self
from urllib import request
from urllib.parse import urlsplit

import aiohttp
from aiohttp.connector import NEEDS_CLEANUP_CLOSED

from gpuextender import access
from gpuextender.access import Access
from gpuextender.kubeerrors import AccessError, StatusError, UnreachableError, failure_of
from gpuextender.posts import Poster

CONNECTIONS: Final = 128
CONNECT_SECONDS: Final = 3.0
REQUEST_SECONDS: Final = 30.0
READ_BUFFER: Final = 2**18
UNAUTHORIZED: Final = 401
JSON: Final = "application/json"
_HEADERS: Final = {
    "User-Agent": "gpushare-extender",
    "Accept": JSON,
    "Accept-Encoding": "identity",  # a start would wait for the API server to compress its lists
}


class Api(Protocol):
    """What this service asks of an API server; paths are absolute, bodies are JSON."""

    async def get(self, path: str, *, params: Mapping[str, str] | None = None) -> bytes:
        """Body of a GET."""
        ...

    async def post(self, path: str, body: bytes) -> bytes:
        """Create; answers the reply's body."""
        ...

    async def patch(self, path: str, body: bytes) -> bytes:
        """Merge patch; answers the reply's body."""
        ...

    def watch(
        self, path: str, *, params: Mapping[str, str], silence: float
    ) -> AsyncIterator[list[bytes]]:
        """Lines of a watch as they come; a clean end ends it, ``silence`` seconds raise."""
        ...


def split_lines(rest: bytes, chunk: bytes) -> tuple[list[bytes], bytes]:
    """Whole lines in ``rest + chunk``, and what is left of the last one."""
    lines = (rest + chunk).split(b"\n")
    left = lines.pop()
    return [line for line in lines if line], left


class KubeApi:
    """:class:`Api` over one HTTP session; make it with :meth:`connect`, then use as a context."""

    def __init__(self, found: Access, kubeconfig: Path | None) -> None:
        self._access = found
        self._kubeconfig = kubeconfig
        self._host = found.host
        proxy = found.proxy or _proxy(found.host)
        self._session = _session(found.tls, proxy)
        self._poster = None if proxy else _poster(self._host, found.tls)

    @classmethod
    async def connect(cls, kubeconfig: Path | None) -> Self:
        """Read a kubeconfig file, or the pod's service account where there is none.

        Raises:
            AccessError: neither says where the API server is.
        """
        return cls(await access.find(kubeconfig), kubeconfig)

    async def __aenter__(self) -> Self:
        """Nothing is opened before the first request."""
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close all connections."""
        if self._poster is not None:
            await self._poster.close()
        await self._session.close()

    async def get(self, path: str, *, params: Mapping[str, str] | None = None) -> bytes:
        """Body of a GET."""
        return await self._ask("GET", path, params=params)

    async def post(self, path: str, body: bytes) -> bytes:
        """Create; answers the reply's body."""
        if self._poster is None:
            return await self._ask("POST", path, body=body, content=JSON)
        headers = {**_HEADERS, "Content-Type": JSON, **await self._credentials()}
        try:
            reply = await self._poster.post(path, body, headers)
        except (OSError, TimeoutError) as error:
            raise UnreachableError(f"POST {path}: {_reason(error)}") from error
        if reply.status >= 300:
            await self._renew(reply.status)
            after = reply.headers.get("retry-after", "")
            raise failure_of(
                f"POST {path}", reply.status, reply.reason, reply.body, retry_after=after
            )
        return reply.body

    async def patch(self, path: str, body: bytes) -> bytes:
        """Merge patch; answers the reply's body."""
        return await self._ask("PATCH", path, body=body, content="application/merge-patch+json")

    async def watch(
        self, path: str, *, params: Mapping[str, str], silence: float
    ) -> AsyncIterator[list[bytes]]:
        """Lines of a watch, several at a time where they came together; none when it opens."""
        timeout = aiohttp.ClientTimeout(sock_connect=CONNECT_SECONDS, sock_read=silence)
        asked = f"watch {path}"
        try:
            async with self._session.get(
                self._host + path,
                params={**params, "watch": "1"},
                headers=await self._credentials(),
                timeout=timeout,
            ) as reply:
                if reply.status != 200:
                    await self._renew(reply.status)
                    raise _failure(asked, reply, await reply.read())
                yield []  # accepted: the server was heard
                rest = b""
                async for chunk in reply.content.iter_any():
                    lines, rest = split_lines(rest, chunk)
                    yield lines
        except (aiohttp.ClientError, TimeoutError) as error:
            raise UnreachableError(f"{asked}: {_reason(error)}") from error

    async def _ask(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        body: bytes | None = None,
        content: str = "",
    ) -> bytes:
        headers = await self._credentials()
        if content:
            headers["Content-Type"] = content
        try:
            async with self._session.request(
                method, self._host + path, params=params, data=body, headers=headers
            ) as reply:
                answer = await reply.read()
                if reply.status >= 300:
                    await self._renew(reply.status)
                    raise _failure(f"{method} {path}", reply, answer)
                return answer
        except (aiohttp.ClientError, TimeoutError) as error:
            raise UnreachableError(f"{method} {path}: {_reason(error)}") from error

    async def _renew(self, status: int) -> None:
        """Get new credentials for the next try, where a kubeconfig's own have expired.

        A token's file is read again every minute by the access itself.
        """
        if status == UNAUTHORIZED and self._kubeconfig is not None:
            with suppress(AccessError):  # being replaced right now: what there was may still do
                self._access = await access.find(self._kubeconfig)

    async def _credentials(self) -> dict[str, str]:
        """The bearer token; certificates are in TLS."""
        found = await self._access.authorization()
        return {"Authorization": found} if found else {}


def _poster(host: str, tls: ssl.SSLContext | None) -> Poster:
    return Poster(host, tls, connect_seconds=CONNECT_SECONDS, seconds=REQUEST_SECONDS)


def _session(tls: ssl.SSLContext | None, proxy: str | None) -> aiohttp.ClientSession:
    """One pool for everything but POSTs; watches hold a connection each.

    The environment's proxy is looked up here, once: aiohttp would do so for every request, in a
    thread, which takes longer than the rest of the request.
    """
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(
            limit=CONNECTIONS,
            ssl=tls or True,
            # Older Pythons keep a TLS connection that was hung up in the middle of a watch until
            # the peer says farewell, which it need not do.
            enable_cleanup_closed=NEEDS_CLEANUP_CLOSED,
        ),
        proxy=proxy,
        timeout=aiohttp.ClientTimeout(total=REQUEST_SECONDS, sock_connect=CONNECT_SECONDS),
        headers=_HEADERS,
        read_bufsize=READ_BUFFER,
    )


def _proxy(host: str) -> str | None:
    """The proxy that the environment names for ``host``, unless it is exempt."""
    parts = urlsplit(host)
    exempt = request.proxy_bypass(parts.hostname or "")
    return None if exempt else request.getproxies().get(parts.scheme)


def _failure(asked: str, reply: aiohttp.ClientResponse, body: bytes) -> StatusError:
    after = reply.headers.get("Retry-After", "")
    return failure_of(asked, reply.status, reply.reason or "", body, retry_after=after)


def _reason(error: Exception) -> str:
    """Timeouts have no text of their own."""
    return str(error) or type(error).__name__
