"""Which clients of the authority may call the verbs: those whose certificate has a known name.

TLS proves that the authority signed a certificate, and the authority may sign for others than the
scheduler. The name is the subject's common name, or a DNS name of the certificate.
"""

from collections.abc import Collection, Iterator
from typing import Any, Final

import structlog
from starlette.types import ASGIApp, Receive, Scope, Send

from gpukube.connections import Gate

FORBIDDEN: Final = 403

log = structlog.get_logger(__name__)


class ClientNames:
    """An ASGI application that answers 403 to clients of other names.

    Args:
        behind: answers the others.
        gate: knows the connections, and so the certificates.
    """

    def __init__(self, behind: ASGIApp, gate: Gate, names: Collection[str]) -> None:
        self._behind, self._gate, self._names = behind, gate, frozenset(names)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or answer it here."""
        shown = set(names_of(self._gate.transport_info(scope["client"], "peercert")))
        if self._names & shown:
            await self._behind(scope, receive, send)
            return
        who = ", ".join(sorted(shown)) or "nobody"
        log.warning("client certificate refused", names=who, client=scope["client"][0])
        text = f"client certificate of {who}: not among tls-client-names".encode()
        headers = [
            (b"content-type", b"text/plain; charset=utf-8"),
            (b"content-length", str(len(text)).encode()),
            (b"connection", b"close"),
        ]
        await send({"type": "http.response.start", "status": FORBIDDEN, "headers": headers})
        await send({"type": "http.response.body", "body": text})


def names_of(certificate: Any) -> Iterator[str]:
    """Common names and DNS names of a certificate, as :mod:`ssl` describes it."""
    described = certificate or {}
    for part in described.get("subject", ()):
        yield from (value for key, value in part if key == "commonName")
    yield from (value for kind, value in described.get("subjectAltName", ()) if kind == "DNS")
