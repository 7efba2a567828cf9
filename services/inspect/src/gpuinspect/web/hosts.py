"""The host names that a local dashboard accepts.

A dashboard on the loopback address is still reachable for any web site whose name resolves to
127.0.0.1, through the visitor's browser (DNS rebinding). Such requests carry the site's name as
``Host``, which distinguishes them from the user's own.
"""

from ipaddress import ip_address
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send


class LocalHosts:
    """Refuses requests that were not meant for this machine."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or is_local(Headers(scope=scope).get("host", "")):
            await self._app(scope, receive, send)
            return
        refusal = PlainTextResponse("this page answers to localhost alone", status_code=421)
        await refusal(scope, receive, send)


def url_host(host: str) -> str:
    """An address to listen on as it is written in a URL; all addresses include this machine's."""
    return f"[{host}]" if ":" in host else host or "localhost"


def is_local(host: str) -> bool:
    """The host is the loopback address or ``localhost``, with or without a port."""
    try:
        name = host if host.count(":") > 1 and host[0] != "[" else urlsplit(f"//{host}").hostname
        return name == "localhost" or ip_address(name or "").is_loopback
    except ValueError:
        return False
