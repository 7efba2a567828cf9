"""The client of the Kubernetes API server: bytes in, bytes out.

The narrow decoders of ``gpucore.wire`` read the replies. :mod:`gpukube.kubeconfig` finds the server
and the credentials. Nothing is retried here, because what a failure means depends on the caller;
all failures are those of :mod:`gpukube.errors`.
"""

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any, Final, Self

import msgspec

from gpucore.wire.errors import parsable
from gpukube.config import ClientConfig
from gpukube.errors import ConfigError, StatusError
from gpukube.interface import (
    JSON,
    JSON_PATCH,
    MERGE_PATCH,
    Body,
    KubeClient,
    Reply,
    encoded,
    failure_in,
    headers_of,
)
from gpukube.kubeconfig import finding as configs
from gpukube.prefetch import Prefetch
from gpukube.proxies import proxy_for
from gpukube.session import Session

REQUEST_SECONDS: Final = 30.0
UNAUTHORIZED: Final = 401
__all__ = ["Body", "HttpKubeClient", "KubeClient"]

_Query = tuple[str, tuple[tuple[str, str], ...]]


DRY_RUN: Final = {"dryRun": "All"}


class HttpKubeClient:
    """A :class:`KubeClient` over kept connections; create it with :meth:`connect`.

    Args:
        found: address and credentials of the API server.
        kubeconfig: file that is read again when the server answers 401.
        seconds: timeout of a request.
    """

    def __init__(
        self,
        found: ClientConfig,
        kubeconfig: Path | None,
        *,
        user_agent: str,
        seconds: float = REQUEST_SECONDS,
    ) -> None:
        self._config, self._kubeconfig = found, kubeconfig
        self._headers = headers_of(user_agent)
        self._session = _session(found, seconds)
        self._seconds = seconds
        self._prefetched: dict[_Query, Prefetch] = {}

    @classmethod
    async def connect(
        cls,
        kubeconfig: Path | None,
        *,
        user_agent: str,
        seconds: float = REQUEST_SECONDS,
    ) -> Self:
        """Read a kubeconfig file, or the service account of this pod without one.

        Raises:
            ConfigError: neither names an API server.
        """
        found = await configs.load(kubeconfig)
        return cls(found, kubeconfig, user_agent=user_agent, seconds=seconds)

    async def __aenter__(self) -> Self:
        """No connection is opened before the first request."""
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        for prefetch in self._prefetched.values():
            await prefetch.close()
        await self._session.close()

    def prefetch(self, path: str, params: Mapping[str, str]) -> None:
        """Send a GET now; the next :meth:`get_in_chunks` of the same takes what it gets."""
        self._prefetched[_query(path, params)] = Prefetch(path, self._list(path, params))

    async def get(self, path: str, *, params: Mapping[str, str] | None = None) -> bytes:
        return await self._request("GET", path, params=params)

    async def get_in_chunks(
        self, path: str, *, params: Mapping[str, str]
    ) -> AsyncGenerator[bytes, None]:
        """GET a long list; its bytes as they arrive, also those of an earlier :meth:`prefetch`."""
        prefetch = self._prefetched.pop(_query(path, params), None)
        body = prefetch.chunks() if prefetch else self._list(path, params)
        async with aclosing(body) as chunks:
            async for chunk in chunks:
                yield chunk

    def _list(self, path: str, params: Mapping[str, str]) -> AsyncGenerator[bytes, None]:
        return self._stream(f"GET {path}", path, params, self._seconds)

    async def post(self, path: str, body: Body) -> bytes:
        return await self._request("POST", path, body=body, content=JSON)

    async def dry_run(self, path: str, body: Body) -> bytes:
        """The object as the API server would store it; nothing is created."""
        return await self._request("POST", path, params=DRY_RUN, body=body, content=JSON)

    async def patch(self, path: str, body: Body) -> bytes:
        """Apply a JSON merge patch; ``None`` removes a field."""
        return await self._request("PATCH", path, body=body, content=MERGE_PATCH)

    async def json_patch(self, path: str, operations: Sequence[Mapping[str, Any]]) -> bytes:
        """Apply a JSON patch (RFC 6902): all of its operations, or none."""
        body = msgspec.json.encode(operations)
        return await self._request("PATCH", path, body=body, content=JSON_PATCH)

    async def delete(self, path: str) -> bytes:
        return await self._request("DELETE", path)

    async def watch(
        self, path: str, *, params: Mapping[str, str], silence: float
    ) -> AsyncGenerator[list[bytes], None]:
        """Lines of a watch as they arrive; see :meth:`KubeClient.watch`."""
        received = Lines()
        watched = {**params, "watch": "1"}
        async with aclosing(self._stream(f"watch {path}", path, watched, silence)) as chunks:
            async for chunk in chunks:
                yield received.add(chunk)

    async def _stream(
        self, request: str, path: str, params: Mapping[str, str], silence: float
    ) -> AsyncGenerator[bytes, None]:
        """The body of a success as it arrives; see :meth:`Session.stream`."""
        headers = [*self._headers.items(), *await self._credentials()]
        stream = self._session.stream(
            request, path, params=params, headers=headers, silence=silence
        )
        async with aclosing(stream) as chunks:
            try:
                async for chunk in chunks:
                    yield chunk
            except StatusError as error:
                await self._renew_credentials(error.status)
                raise

    async def _request(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        body: Body | None = None,
        content: str = "",
    ) -> bytes:
        headers = [*self._headers.items(), *await self._credentials()]
        if content:
            headers.append(("Content-Type", content))
        data = None if body is None else encoded(body)
        reply = await self._session.request(method, path, params=params, body=data, headers=headers)
        return await self._body_of(f"{method} {path}", reply)

    async def _body_of(self, request: str, reply: Reply) -> bytes:
        """The body of a success; every other reply is raised."""
        if 200 <= reply.status < 300:
            return parsable(reply.body)
        await self._renew_credentials(reply.status)
        raise failure_in(request, reply)

    async def _renew_credentials(self, status: int) -> None:
        """Read the kubeconfig again after a 401; token files are read again every minute anyway."""
        if status != UNAUTHORIZED or self._kubeconfig is None:
            return
        try:
            found = await configs.load(self._kubeconfig)
            session = _session(found, self._seconds)
        except ConfigError:  # the file may be in the middle of a replacement
            return
        before, self._config = self._config, found
        if found.certificate != before.certificate:  # connections keep that of their beginning
            session, self._session = self._session, session
        await session.close()

    async def _credentials(self) -> list[tuple[str, str]]:
        """Impersonation and the Authorization header; certificates are part of the TLS context."""
        config = self._config
        found = (
            await asyncio.to_thread(config.authorization) if config.due else config.authorization()
        )
        others = config.impersonation.headers()
        return [*others, ("Authorization", found)] if found else others


def _session(found: ClientConfig, seconds: float) -> Session:
    return Session(
        found.host,
        found.tls,
        server_name=found.server_name,
        proxy=proxy_for(found.host, found.proxy),
        seconds=seconds,
    )


class Lines:
    """The lines of a stream, in time that grows with its length: an event may have 9 MiB."""

    def __init__(self) -> None:
        self._rest: list[bytes] = []

    def add(self, chunk: bytes) -> list[bytes]:
        """The lines that are complete with ``chunk``; empty ones are left out."""
        first, *others = chunk.split(b"\n")
        self._rest.append(first)
        if not others:
            return []
        *lines, left = [b"".join(self._rest), *others]
        self._rest = [left]
        return [line for line in lines if line]


def _query(path: str, params: Mapping[str, str]) -> _Query:
    return path, tuple(sorted(params.items()))
