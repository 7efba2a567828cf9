"""Which names a page on this machine answers to.

A page that listens on the loopback address alone is still reached by any web site that has its own
name resolve to 127.0.0.1 and asks through the visitor's browser. Such requests carry the site's
name as ``Host``, so they are told apart from those of the person at the machine.
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
        """Pass the request on, or answer 421 here."""
        if scope["type"] != "http" or is_local(Headers(scope=scope).get("host", "")):
            await self._app(scope, receive, send)
            return
        refusal = PlainTextResponse("this page answers to localhost alone", status_code=421)
        await refusal(scope, receive, send)


def is_local(host: str) -> bool:
    """The host is the loopback address or ``localhost``, with or without a port."""
    try:
        name = host if host.count(":") > 1 and host[0] != "[" else urlsplit(f"//{host}").hostname
        return name == "localhost" or ip_address(name or "").is_loopback
    except ValueError:
        return False
