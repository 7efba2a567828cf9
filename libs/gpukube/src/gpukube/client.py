"""The client of the Kubernetes API server: bytes in, bytes out.

The narrow decoders of ``gpucore.wire`` read the replies. :mod:`gpukube.config` finds the server and
the credentials. Nothing is retried here, because only the caller knows what a failure means; all
failures are those of :mod:`gpukube.errors`.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol, Self
from urllib import request
from urllib.parse import urlsplit

import msgspec

from gpukube import config
from gpukube.config import ClientConfig
from gpukube.errors import ConfigError, StatusError, UnreachableError, failure_of
from gpukube.http1 import ConnectionPool, Reply

if TYPE_CHECKING:
    from gpukube.session import Session

CONNECT_SECONDS: Final = 3.0
REQUEST_SECONDS: Final = 30.0
UNAUTHORIZED: Final = 401
JSON: Final = "application/json"
MERGE_PATCH: Final = "application/merge-patch+json"

Body = bytes | Mapping[str, Any]
"""Encoded JSON, or an object that the client encodes."""
_Query = tuple[str, tuple[tuple[str, str], ...]]


class KubeClient(Protocol):
    """The calls that services make; paths are absolute, bodies are JSON."""

    async def get(self, path: str, *, params: Mapping[str, str] | None = None) -> bytes:
        """GET an object or a list."""
        ...

    async def post(self, path: str, body: Body) -> bytes:
        """Create an object."""
        ...

    async def patch(self, path: str, body: Body) -> bytes:
        """Apply a JSON merge patch; ``None`` removes a field."""
        ...

    async def delete(self, path: str) -> bytes:
        """Delete an object."""
        ...

    def watch(
        self, path: str, *, params: Mapping[str, str], silence: float
    ) -> AsyncIterator[list[bytes]]:
        """Lines of a watch as they arrive, starting with an empty list once the server accepted it.

        Raises:
            StatusError: the server refused the watch.
            UnreachableError: the connection broke, or nothing came for ``silence`` seconds.
        """
        ...


class HttpKubeClient:
    """A :class:`KubeClient` over kept connections; create it with :meth:`connect`.

    POST and prefetched GET requests use the small client of :mod:`gpukube.http1`. Everything else,
    and everything through a proxy, uses aiohttp (:mod:`gpukube.session`).

    Args:
        found: address and credentials of the API server.
        kubeconfig: file that is read again when the server answers 401.
        user_agent: name of this program in the audit log of the API server.
    """

    def __init__(self, found: ClientConfig, kubeconfig: Path | None, *, user_agent: str) -> None:
        self._config = found
        self._kubeconfig = kubeconfig
        self._headers = {
            "User-Agent": user_agent,
            "Accept": JSON,
            "Accept-Encoding": "identity",  # compressing the first lists would delay the start
        }
        self._proxy = found.proxy or _proxy(found.host)
        self._pool = None if self._proxy else _pool(found)
        self._session: Session | None = None
        self._prefetched: dict[_Query, asyncio.Task[bytes]] = {}

    @classmethod
    async def connect(cls, kubeconfig: Path | None, *, user_agent: str) -> Self:
        """Read a kubeconfig file, or the service account of this pod without one.

        Raises:
            ConfigError: neither names an API server.
        """
        return cls(await config.load(kubeconfig), kubeconfig, user_agent=user_agent)

    async def __aenter__(self) -> Self:
        """No connection is opened before the first request."""
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close all connections."""
        for task in self._prefetched.values():
            task.cancel()
        await asyncio.gather(*self._prefetched.values(), return_exceptions=True)
        if self._pool is not None:
            await self._pool.close()
        if self._session is not None:
            await self._session.close()

    def prefetch(self, path: str, params: Mapping[str, str]) -> None:
        """Send a GET now; the next :meth:`get` of the same takes its reply, or its failure."""
        if self._pool is not None:
            task = asyncio.create_task(self._get_from_pool(self._pool, path, params))
            self._prefetched[_query(path, params)] = task

    async def get(self, path: str, *, params: Mapping[str, str] | None = None) -> bytes:
        """GET an object or a list."""
        if self._prefetched:
            task = self._prefetched.pop(_query(path, params or {}), None)
            if task is not None:
                return await task
        return await self._request("GET", path, params=params)

    async def post(self, path: str, body: Body) -> bytes:
        """Create an object."""
        if self._pool is None:
            return await self._request("POST", path, body=body, content=JSON)
        headers = {**self._headers, "Content-Type": JSON, **await self._credentials()}
        try:
            reply = await self._pool.post(path, _encoded(body), headers)
        except (OSError, TimeoutError) as error:
            raise UnreachableError.because(f"POST {path}", error) from error
        return await self._body_of(f"POST {path}", reply)

    async def patch(self, path: str, body: Body) -> bytes:
        """Apply a JSON merge patch; ``None`` removes a field."""
        return await self._request("PATCH", path, body=body, content=MERGE_PATCH)

    async def delete(self, path: str) -> bytes:
        """Delete an object."""
        return await self._request("DELETE", path)

    async def watch(
        self, path: str, *, params: Mapping[str, str], silence: float
    ) -> AsyncGenerator[list[bytes], None]:
        """Lines of a watch as they arrive; see :meth:`KubeClient.watch`."""
        headers = {**self._headers, **await self._credentials()}
        stream = self._aiohttp().watch(path, params=params, headers=headers, silence=silence)
        async with aclosing(stream):
            try:
                async for lines in stream:
                    yield lines
            except StatusError as error:
                await self._renew_credentials(error.status)
                raise

    async def _get_from_pool(
        self, pool: ConnectionPool, path: str, params: Mapping[str, str]
    ) -> bytes:
        headers = {**self._headers, **await self._credentials()}
        try:
            reply = await pool.get(path, params, headers)
        except (OSError, TimeoutError) as error:
            raise UnreachableError.because(f"GET {path}", error) from error
        return await self._body_of(f"GET {path}", reply)

    async def _request(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        body: Body | None = None,
        content: str = "",
    ) -> bytes:
        headers = {**self._headers, **await self._credentials()}
        if content:
            headers["Content-Type"] = content
        data = None if body is None else _encoded(body)
        reply = await self._aiohttp().request(
            method, path, params=params, body=data, headers=headers
        )
        return await self._body_of(f"{method} {path}", reply)

    async def _body_of(self, request: str, reply: Reply) -> bytes:
        """The body of a success; every other reply is raised."""
        if reply.status < 300:
            return reply.body
        await self._renew_credentials(reply.status)
        after = reply.headers.get("retry-after", "")
        raise failure_of(request, reply.status, reply.reason, reply.body, retry_after=after)

    def _aiohttp(self) -> "Session":
        """The aiohttp session, imported at its first use because the import takes a while."""
        if self._session is None:
            from gpukube.session import Session  # noqa: PLC0415 - see above

            self._session = Session(
                self._config.host,
                self._config.tls,
                proxy=self._proxy,
                connect_seconds=CONNECT_SECONDS,
                seconds=REQUEST_SECONDS,
            )
        return self._session

    async def _renew_credentials(self, status: int) -> None:
        """Read the kubeconfig again after a 401; token files are read again every minute anyway."""
        if status == UNAUTHORIZED and self._kubeconfig is not None:
            with suppress(ConfigError):  # the file may be in the middle of a replacement
                self._config = await config.load(self._kubeconfig)

    async def _credentials(self) -> dict[str, str]:
        """The Authorization header; client certificates are part of the TLS context."""
        found = await self._config.authorization()
        return {"Authorization": found} if found else {}


def _encoded(body: Body) -> bytes:
    return body if isinstance(body, bytes) else msgspec.json.encode(body)


def _pool(found: ClientConfig) -> ConnectionPool:
    return ConnectionPool(
        found.host, found.tls, connect_seconds=CONNECT_SECONDS, seconds=REQUEST_SECONDS
    )


def _query(path: str, params: Mapping[str, str]) -> _Query:
    return path, tuple(sorted(params.items()))


def _proxy(host: str) -> str | None:
    """The proxy that the environment names for ``host``, unless ``host`` is exempt.

    It is looked up once, because aiohttp would look it up for every request in a thread, which
    takes longer than the rest of the request.
    """
    parts = urlsplit(host)
    exempt = request.proxy_bypass(parts.hostname or "")
    return None if exempt else request.getproxies().get(parts.scheme)
