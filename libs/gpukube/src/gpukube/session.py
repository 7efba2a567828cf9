"""Requests through aiohttp, for programs with an event loop; replies whole or as they arrive."""

import asyncio
import ssl
from collections.abc import AsyncGenerator, Iterable, Mapping
from typing import Final

from gpukube.authorities import no_public_authorities
from gpukube.errors import UnreachableError
from gpukube.interface import Reply, failure_in
from gpukube.proxies import Proxy

with no_public_authorities():
    import aiohttp
    from aiohttp.connector import NEEDS_CLEANUP_CLOSED

CONNECTIONS: Final = 128
CONNECT_SECONDS: Final = 3.0
READ_BUFFER_BYTES: Final = 2**18


class Session:
    """A pool of connections; each reply that is read as it arrives holds one.

    Args:
        host: with its scheme and port.
        tls: where the scheme is https.
        server_name: name in the certificate of the server where it is not that of the host.
        proxy: proxy for all of it, if any.
        seconds: timeout of a whole request; of a stream, see there.
    """

    def __init__(
        self,
        host: str,
        tls: ssl.SSLContext | None,
        *,
        server_name: str | None = None,
        proxy: Proxy | None,
        seconds: float,
    ) -> None:
        self._host = host
        self._server_name = server_name
        sent = {"Proxy-Authorization": proxy.authorization} if proxy and proxy.authorization else {}
        # The request for a tunnel has the header; without TLS there is no tunnel.
        self._for_proxy, self._headers = (sent, {}) if tls else ({}, sent)
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(
                limit=CONNECTIONS,
                ssl=_context(tls, proxy),
                # Older Pythons keep a TLS connection that was aborted in the middle of a watch
                # until the peer sends its close notification, which it may never do.
                enable_cleanup_closed=NEEDS_CLEANUP_CLOSED,
            ),
            proxy=proxy.url if proxy else None,
            timeout=aiohttp.ClientTimeout(total=seconds, sock_connect=CONNECT_SECONDS),
            read_bufsize=READ_BUFFER_BYTES,
        )

    async def close(self) -> None:
        await self._session.close()

    async def request(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str] | None,
        body: bytes | None,
        headers: Iterable[tuple[str, str]],
    ) -> Reply:
        """The whole reply, whatever its status.

        Raises:
            UnreachableError: there was no reply in time.
        """
        try:
            async with self._session.request(
                method,
                self._host + path,
                params=params,
                data=body,
                headers=[*headers, *self._headers.items()],
                proxy_headers=self._for_proxy,
                server_hostname=self._server_name,
                allow_redirects=False,  # credentials are for this server alone
            ) as reply:
                return await _whole(reply)
        except (aiohttp.ClientError, TimeoutError) as error:
            raise UnreachableError.because(f"{method} {path}", error) from error

    async def stream(
        self,
        request: str,
        path: str,
        *,
        params: Mapping[str, str],
        headers: Iterable[tuple[str, str]],
        silence: float,
    ) -> AsyncGenerator[bytes, None]:
        """The body of a reply as it arrives, starting with no bytes once the server accepted it.

        Args:
            request: what errors call it.
            silence: longest time without a byte, in seconds.

        Raises:
            StatusError: the server refused the request.
            UnreachableError: the connection broke, or nothing came for ``silence`` seconds.
        """
        timeout = aiohttp.ClientTimeout(
            connect=silence,  # a proxy may take the connection and never answer
            sock_connect=CONNECT_SECONDS,
            sock_read=silence,
        )
        try:
            async with self._session.get(
                self._host + path,
                params=params,
                headers=[*headers, *self._headers.items()],
                proxy_headers=self._for_proxy,
                timeout=timeout,
                server_hostname=self._server_name,
                allow_redirects=False,  # credentials are for this server alone
            ) as reply:
                if reply.status != 200:
                    raise failure_in(request, await _whole(reply))
                yield b""  # the server accepted the request
                while chunk := await _next(reply.content, silence):
                    yield chunk
        except (aiohttp.ClientError, TimeoutError) as error:
            raise UnreachableError.because(request, error) from error


def _context(tls: ssl.SSLContext | None, proxy: Proxy | None) -> ssl.SSLContext | bool:
    """The context of all connections; a proxy may have TLS where the API server has none."""
    if tls is None and proxy is not None and proxy.url.startswith("https:"):
        return ssl.create_default_context()
    return tls or True


async def _next(body: aiohttp.StreamReader, silence: float) -> bytes:
    """The next bytes, none at the end; a body with a broken length would never end by itself."""
    async with asyncio.timeout(silence):
        return await body.readany()


async def _whole(reply: aiohttp.ClientResponse) -> Reply:
    headers = {name.lower(): value for name, value in reply.headers.items()}
    return Reply(reply.status, reply.reason or "", headers, await reply.read())
