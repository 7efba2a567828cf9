"""Every kind of request to one HTTP server, with a general client: proxies, PATCH, endless replies.

It takes a while to load and costs more for each request than :mod:`gpuextender.posts`; so it is
loaded when it is first needed, and what must be quick goes the other way.
"""

import ssl
from collections.abc import AsyncGenerator, Mapping
from typing import Final

import aiohttp
from aiohttp.connector import NEEDS_CLEANUP_CLOSED

from gpuextender.kubeerrors import UnreachableError, failure_of
from gpuextender.posts import Reply

CONNECTIONS: Final = 128
READ_BUFFER: Final = 2**18


def split_lines(rest: bytes, chunk: bytes) -> tuple[list[bytes], bytes]:
    """Whole lines in ``rest + chunk``, and what is left of the last one."""
    lines = (rest + chunk).split(b"\n")
    left = lines.pop()
    return [line for line in lines if line], left


class General:
    """One pool of connections; a watch holds one of them.

    Args:
        host: with its scheme and port.
        tls: where the scheme is https.
        proxy: URL of a proxy for all of it.
        connect_seconds: for a new connection.
        seconds: for a whole request, but for watches.
    """

    def __init__(
        self,
        host: str,
        tls: ssl.SSLContext | None,
        *,
        proxy: str | None,
        connect_seconds: float,
        seconds: float,
    ) -> None:
        self._host = host
        self._connect_seconds = connect_seconds
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(
                limit=CONNECTIONS,
                ssl=tls or True,
                # Older Pythons keep a TLS connection that was hung up in the middle of a watch
                # until the peer says farewell, which it need not do.
                enable_cleanup_closed=NEEDS_CLEANUP_CLOSED,
            ),
            proxy=proxy,
            timeout=aiohttp.ClientTimeout(total=seconds, sock_connect=connect_seconds),
            read_bufsize=READ_BUFFER,
        )

    async def close(self) -> None:
        """Close all connections."""
        await self._session.close()

    async def ask(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str] | None,
        body: bytes | None,
        headers: Mapping[str, str],
    ) -> Reply:
        """The whole reply, whatever its status.

        Raises:
            UnreachableError: none came, or not in time.
        """
        try:
            async with self._session.request(
                method, self._host + path, params=params, data=body, headers=headers
            ) as reply:
                return await _whole(reply)
        except (aiohttp.ClientError, TimeoutError) as error:
            raise UnreachableError.because(f"{method} {path}", error) from error

    async def watch(
        self, path: str, *, params: Mapping[str, str], headers: Mapping[str, str], silence: float
    ) -> AsyncGenerator[list[bytes], None]:
        """Lines of a watch, several at a time where they came together; none when it opens.

        Raises:
            StatusError: the server says no.
            UnreachableError: it says nothing for ``silence`` seconds, or is gone.
        """
        timeout = aiohttp.ClientTimeout(sock_connect=self._connect_seconds, sock_read=silence)
        asked = f"watch {path}"
        try:
            async with self._session.get(
                self._host + path,
                params={**params, "watch": "1"},
                headers=headers,
                timeout=timeout,
            ) as reply:
                if reply.status != 200:
                    raise _failure(asked, await _whole(reply))
                yield []  # accepted: the server was heard
                rest = b""
                async for chunk in reply.content.iter_any():
                    lines, rest = split_lines(rest, chunk)
                    yield lines
        except (aiohttp.ClientError, TimeoutError) as error:
            raise UnreachableError.because(asked, error) from error


async def _whole(reply: aiohttp.ClientResponse) -> Reply:
    headers = {name.lower(): value for name, value in reply.headers.items()}
    return Reply(reply.status, reply.reason or "", headers, await reply.read())


def _failure(asked: str, reply: Reply) -> Exception:
    after = reply.headers.get("retry-after", "")
    return failure_of(asked, reply.status, reply.reason, reply.body, retry_after=after)
