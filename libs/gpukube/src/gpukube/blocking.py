"""The client for programs that have no event loop, such as a command line.

It goes through urllib3, which the official client has imported already where a kubeconfig is read.
Several threads may use one client.
"""

import re
import time
from collections.abc import Iterator, Mapping, Sequence
from http.client import HTTPException, IncompleteRead
from pathlib import Path
from typing import Any, Final, Self
from urllib.parse import quote, urlencode

import msgspec
from urllib3 import HTTPHeaderDict, PoolManager, ProxyManager, Timeout, disable_warnings
from urllib3.exceptions import HTTPError, InsecureRequestWarning, ProtocolError

from gpucore.wire.errors import parsable
from gpukube.bounded import Bound
from gpukube.config import ClientConfig
from gpukube.errors import (
    ConfigError,
    GoneError,
    InvalidReplyError,
    ListMetadata,
    ThrottledError,
    UnreachableError,
)
from gpukube.interface import JSON, JSON_PATCH, Body, Reply, encoded, failure_in, headers_of
from gpukube.kubeconfig.finding import configuration, found_by_kubectl
from gpukube.proxies import proxy_for

CONNECT_SECONDS: Final = 3.0
CONNECTIONS: Final = 16
RETRY_SECONDS: Final = 10
"""Longest wait for a server that is overloaded."""
PAGE: Final = 2500
"""Maximum number of items of one page.

Five times kubectl's: 10,000 pods in pages of 500 take the API server of 1.37 twice the CPU time.
"""


class _List(msgspec.Struct):
    metadata: ListMetadata


_BEGINNING: Final = re.compile(
    rb'\{"kind":"\w+","apiVersion":"[\w./]+","metadata":(\{[^{}]*\}),"items":'
)
"""The beginning of a page; its continue token is read without a second parse of the page."""


class BlockingClient:
    """One API server; every call blocks until its reply is complete.

    All calls raise the errors of :mod:`gpukube.errors`.

    Attributes:
        seconds: timeout of a request.
    """

    def __init__(
        self, found: ClientConfig, headers: Mapping[str, str], seconds: float, as_user: str = ""
    ) -> None:
        self._headers = HTTPHeaderDict(headers)
        self._headers["Accept-Encoding"] = "gzip"  # pods repeat each other
        for name, value in found.impersonation.headers(as_user):
            self._headers.add(name, value)
        self._config, self.seconds = found, seconds
        self._server = _server(found, seconds)

    @classmethod
    def connect(
        cls,
        kubeconfig: Path | None = None,
        *,
        context: str = "",
        user_agent: str,
        seconds: float,
        as_user: str = "",
    ) -> Self:
        """Credentials as kubectl finds them, or those of the pod this runs in.

        Args:
            context: name of a context in it; empty for the current one.
            seconds: timeout of a request.
            as_user: user to impersonate; empty for none.

        Raises:
            ConfigError: there are none, or they cannot be read.
        """
        found = configuration(found_by_kubectl(kubeconfig, context), context)
        return cls(found, headers_of(user_agent), seconds, as_user)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._server.clear()

    def get(self, path: str, params: Mapping[str, str] | None = None) -> bytes:
        """GET an object or a list; once more after the time that an overloaded server sets."""
        query = f"?{urlencode(params)}" if params else ""
        try:
            return self._request("GET", path, query)
        except ThrottledError as error:
            if not 0 < error.retry_after <= RETRY_SECONDS:
                raise
            time.sleep(error.retry_after)
        return self._request("GET", path, query)

    def get_small(self, path: str, *, most_bytes: int, seconds: float) -> bytes:
        """GET something that another program than the API server may have written.

        Args:
            most_bytes: maximum size of a reply.
            seconds: for each wait, and for the reply as a whole: it takes at most twice this.

        Raises:
            InvalidReplyError: the reply is larger.
            UnreachableError: it is not complete in time.
        """
        return self._request("GET", path, bound=Bound(most_bytes, time.monotonic() + seconds))

    def post(self, path: str, body: Body) -> bytes:
        return self._request("POST", path, body=encoded(body), kind=JSON)

    def delete(self, path: str, params: Mapping[str, str] | None = None) -> bytes:
        """Delete an object; ``params`` are delete options, such as ``propagationPolicy``."""
        query = f"?{urlencode(params)}" if params else ""
        return self._request("DELETE", path, query)

    def json_patch(self, path: str, operations: Sequence[Mapping[str, Any]]) -> bytes:
        """Apply a JSON patch (RFC 6902): all of its operations, or none."""
        body = msgspec.json.encode(operations)
        return self._request("PATCH", path, body=body, kind=JSON_PATCH)

    def pages(
        self, path: str, params: Mapping[str, str] | None = None, *, cached: bool = False
    ) -> Iterator[bytes]:
        """The pages of a list in order.

        A token expires some minutes after the first page; the server then gives one for the rest of
        the list as it is by then.

        Args:
            params: query of the list, such as a selector.
            cached: read from the watch cache of the API server, which spares etcd; for lists that
                are read again and again.
        """
        query = {"limit": str(PAGE), **(params or {})}
        token = ""
        while True:
            # A token stands for a version already, and the API server takes no second one.
            fresh = {"resourceVersion": "0"} if cached else {}
            body = self._page(path, query | ({"continue": token} if token else fresh))
            yield body
            token = _continue(path, body)
            if not token:
                return

    def _page(self, path: str, query: Mapping[str, str]) -> bytes:
        try:
            return self.get(path, query)
        except GoneError as error:
            if not error.continue_token:
                raise
            return self.get(path, {**query, "continue": error.continue_token})

    def _request(
        self,
        method: str,
        path: str,
        query: str = "",
        *,
        body: bytes | None = None,
        kind: str = "",
        bound: Bound | None = None,
    ) -> bytes:
        headers = self._headers.copy()
        if kind:
            headers["Content-Type"] = kind
        if credentials := self._config.authorization():
            headers["Authorization"] = credentials
        request = f"{method} {path}"
        url = self._config.host + quote(path) + query
        limits = bound.options() if bound else {}
        try:
            reply = self._server.request(
                method, url, body=body, headers=headers, redirect=False, **limits
            )
            data = bound.read(request, reply) if bound else reply.data
        except HTTPError as error:
            raise UnreachableError.because(request, _reason(error)) from error
        except (OverflowError, MemoryError) as error:  # its Content-Length is not checked
            raise UnreachableError(f"{request}: a reply of an impossible length") from error
        if 200 <= reply.status < 300:
            return parsable(data)
        named = {name.lower(): value for name, value in reply.headers.items()}
        raise failure_in(request, Reply(reply.status, reply.reason or "", named, data))


def _reason(error: HTTPError) -> Exception:
    """The cause of a connection error, without the exceptions of urllib3 around it."""
    cause = error.args[-1] if isinstance(error, ProtocolError) else error
    if isinstance(cause, HTTPException) and not isinstance(cause, ConnectionError):
        words = " ".join(str(cause).split())  # what the server sent, as one line
        if isinstance(cause, IncompleteRead):
            return ConnectionError(f"incomplete reply: {words}")
        return ConnectionError(f"no HTTP: {words}")
    return cause if isinstance(cause, Exception) else error


def _server(found: ClientConfig, seconds: float) -> PoolManager:
    """The connections; one that the server closed is replaced, and nothing is sent twice."""
    options: dict[str, Any] = {
        "maxsize": CONNECTIONS,
        "timeout": Timeout(connect=min(CONNECT_SECONDS, seconds), read=seconds),
        "retries": False,
    }
    if found.tls is not None:
        options |= {"ssl_context": found.tls, "server_hostname": found.server_name}
        disable_warnings(InsecureRequestWarning)  # the kubeconfig specifies whether to verify
    proxy = proxy_for(found.host, found.proxy)
    if proxy is None:
        return PoolManager(**options)
    names = [name for name, _ in found.impersonation.headers()]
    if found.tls is None and len(names) > len(set(names)):  # urllib3 would join their values
        raise ConfigError(
            "several groups to impersonate cannot be sent through a proxy to an http:// server:"
            " except it from the proxy with NO_PROXY, or use https"
        )
    sent = {"Proxy-Authorization": proxy.authorization} if proxy.authorization else {}
    return ProxyManager(proxy.url, proxy_headers=sent, **options)


def _continue(path: str, body: bytes) -> str:
    begun = _BEGINNING.match(body)
    try:
        if begun is not None:
            return msgspec.json.decode(begun[1], type=ListMetadata).continue_token or ""
        return msgspec.json.decode(body, type=_List).metadata.continue_token or ""
    except (msgspec.MsgspecError, ValueError) as error:
        raise InvalidReplyError(f"GET {path}: not a list: {error}") from error
