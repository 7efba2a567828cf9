"""The Kubernetes API server as bytes, which the narrow decoders of ``gpucore.wire`` read.

Where it is and which credentials it wants is for :mod:`gpuextender.access`. Nothing is retried
here: callers know what a failure means to them.

Failures are those of :mod:`gpuextender.kubeerrors`.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol, Self
from urllib import request
from urllib.parse import urlsplit

from gpuextender import access
from gpuextender.access import Access
from gpuextender.kubeerrors import AccessError, StatusError, UnreachableError, failure_of
from gpuextender.posts import Poster, Reply

if TYPE_CHECKING:
    from gpuextender.general import General

CONNECT_SECONDS: Final = 3.0
REQUEST_SECONDS: Final = 30.0
UNAUTHORIZED: Final = 401
JSON: Final = "application/json"
_HEADERS: Final = {
    "User-Agent": "gpushare-extender",
    "Accept": JSON,
    "Accept-Encoding": "identity",  # a start would wait for the API server to compress its lists
}
_Asked = tuple[str, tuple[tuple[str, str], ...]]


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


class KubeApi:
    """:class:`Api` over kept connections; make it with :meth:`connect`, then use as a context.

    POSTs, and what is asked ahead, go the lean way (:mod:`gpuextender.posts`); everything else, and
    everything through a proxy, goes the general one (:mod:`gpuextender.general`).
    """

    def __init__(self, found: Access, kubeconfig: Path | None) -> None:
        self._access = found
        self._kubeconfig = kubeconfig
        self._proxy = found.proxy or _proxy(found.host)
        self._poster = None if self._proxy else _poster(found)
        self._general: General | None = None
        self._ahead: dict[_Asked, asyncio.Task[bytes]] = {}

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
        for task in self._ahead.values():
            task.cancel()
        await asyncio.gather(*self._ahead.values(), return_exceptions=True)
        if self._poster is not None:
            await self._poster.close()
        if self._general is not None:
            await self._general.close()

    def ask_ahead(self, path: str, params: Mapping[str, str]) -> None:
        """Send a GET now; the next :meth:`get` of the same takes its answer, or its failure."""
        if self._poster is not None:
            asked = _asked(path, params)
            self._ahead[asked] = asyncio.create_task(self._get_lean(self._poster, path, params))

    async def get(self, path: str, *, params: Mapping[str, str] | None = None) -> bytes:
        """Body of a GET."""
        coming = self._ahead.pop(_asked(path, params or {}), None) if self._ahead else None
        if coming is not None:
            return await coming
        return await self._ask("GET", path, params=params)

    async def post(self, path: str, body: bytes) -> bytes:
        """Create; answers the reply's body."""
        if self._poster is None:
            return await self._ask("POST", path, body=body, content=JSON)
        headers = {**_HEADERS, "Content-Type": JSON, **await self._credentials()}
        try:
            reply = await self._poster.post(path, body, headers)
        except (OSError, TimeoutError) as error:
            raise UnreachableError.because(f"POST {path}", error) from error
        return await self._judged(f"POST {path}", reply)

    async def patch(self, path: str, body: bytes) -> bytes:
        """Merge patch; answers the reply's body."""
        return await self._ask("PATCH", path, body=body, content="application/merge-patch+json")

    async def watch(
        self, path: str, *, params: Mapping[str, str], silence: float
    ) -> AsyncGenerator[list[bytes], None]:
        """Lines of a watch, several at a time where they came together; none when it opens."""
        headers = {**_HEADERS, **await self._credentials()}
        stream = self._way().watch(path, params=params, headers=headers, silence=silence)
        async with aclosing(stream):
            try:
                async for lines in stream:
                    yield lines
            except StatusError as error:
                await self._renew(error.status)
                raise

    async def _get_lean(self, poster: Poster, path: str, params: Mapping[str, str]) -> bytes:
        headers = {**_HEADERS, **await self._credentials()}
        try:
            reply = await poster.get(path, params, headers)
        except (OSError, TimeoutError) as error:
            raise UnreachableError.because(f"GET {path}", error) from error
        return await self._judged(f"GET {path}", reply)

    async def _ask(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        body: bytes | None = None,
        content: str = "",
    ) -> bytes:
        headers = {**_HEADERS, **await self._credentials()}
        if content:
            headers["Content-Type"] = content
        reply = await self._way().ask(method, path, params=params, body=body, headers=headers)
        return await self._judged(f"{method} {path}", reply)

    async def _judged(self, asked: str, reply: Reply) -> bytes:
        """The body of a success; anything else is raised."""
        if reply.status < 300:
            return reply.body
        await self._renew(reply.status)
        after = reply.headers.get("retry-after", "")
        raise failure_of(asked, reply.status, reply.reason, reply.body, retry_after=after)

    def _way(self) -> "General":
        """The general way; loaded when it is first gone, for that takes a while."""
        if self._general is None:
            from gpuextender.general import General  # noqa: PLC0415 - see above

            self._general = General(
                self._access.host,
                self._access.tls,
                proxy=self._proxy,
                connect_seconds=CONNECT_SECONDS,
                seconds=REQUEST_SECONDS,
            )
        return self._general

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


def _poster(found: Access) -> Poster:
    return Poster(found.host, found.tls, connect_seconds=CONNECT_SECONDS, seconds=REQUEST_SECONDS)


def _asked(path: str, params: Mapping[str, str]) -> _Asked:
    return path, tuple(sorted(params.items()))


def _proxy(host: str) -> str | None:
    """The proxy that the environment names for ``host``, unless it is exempt.

    Looked up once: a general client would do so for every request, in a thread, which takes longer
    than the rest of the request.
    """
    parts = urlsplit(host)
    exempt = request.proxy_bypass(parts.hostname or "")
    return None if exempt else request.getproxies().get(parts.scheme)
