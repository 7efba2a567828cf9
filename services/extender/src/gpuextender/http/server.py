"""HTTP servers of this process: ports, limits, certificates, client names, a graceful end.

Limits bound what the clients of a port may use: connections, time and memory. The scheduler's port
has the highest limits, because one scheduler sends a request for each pod that it binds. The
metrics port has the lowest: kubelet and Prometheus open only a few connections.

A stopping process first becomes not ready, then accepts no new connections, then finishes the
requests in flight. uvicorn raises the signal again once it has stopped, so that the signal ends the
process; a pod that stops on SIGTERM should exit with 0, so this module handles signals.

TLS proves that a CA signed the certificate of a client, and the CA may sign for others than the
scheduler. So a client must also have a permitted name: the common name of the subject, or a DNS
name of the certificate.
"""

import asyncio
import signal
import ssl
import time
from collections.abc import AsyncIterator, Callable, Collection, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import structlog
import uvicorn
from starlette.types import ASGIApp, Receive, Scope, Send

from gpuextender import metrics
from gpuextender.settings import ExtenderSettings
from gpukube.server.asgi import GatedServer
from gpukube.server.bodies import BodyLimits, LimitedBodies
from gpukube.server.certificates import CertificateWatcher, ExpiryError, not_after
from gpukube.server.connections import ConnectionGate, Limits

GRACE_SECONDS: Final = 10
FORBIDDEN: Final = 403

log = structlog.get_logger(__name__)


_MIB: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class ListenerLimits:
    """Limits of one listener."""

    connections: Limits
    bodies: BodyLimits


VERBS: Final = ListenerLimits(
    # The idle time is longer than the 90 s for which Go keeps an idle connection. kube-scheduler
    # keeps two of them, and opens a connection for each further bind: more than one a pod.
    Limits(connections=1024, idle=120, rate=1000, burst=2000),
    # A scheduler that sends whole nodes sends about 20 kB for each: 100 MB for 5,000 nodes.
    BodyLimits(each=128 * _MIB, together=256 * _MIB),
)
METRICS: Final = ListenerLimits(
    Limits(connections=64, busy=30, rate=10, burst=50, each_request=True),
    BodyLimits(each=4096, together=64 * 4096),
)
ADMISSION: Final = ListenerLimits(
    # An API server opens a connection for each review that it cannot send over an idle one.
    Limits(connections=512, busy=30, rate=100, burst=500),
    # An object has at most 1.5 MiB in etcd. A review carries an old and a new one as JSON, in which
    # the API server writes `<` and control characters as six bytes: 18 MiB.
    BodyLimits(each=20 * _MIB, together=64 * _MIB),
)


class ServingCertificate(CertificateWatcher):
    """A watcher that publishes when the certificate ends."""

    def loaded(self) -> None:
        """Set the metric; a certificate that cannot be read leaves it as it is."""
        certificate, _ = self.chain
        try:
            ends = not_after(certificate.read_text(errors="replace"))
        except (ExpiryError, OSError) as error:
            log.warning("no date in the certificate", folder=str(self.folder), error=str(error))
            return
        metrics.CERTIFICATE_EXPIRY.labels(str(self.folder)).set(ends)


class ExtenderServer(GatedServer):
    """A uvicorn server behind a gate, which leaves signals to :func:`stop_on_signal`.

    Args:
        certificates: to serve over TLS.
    """

    def __init__(
        self, config: uvicorn.Config, gate: ConnectionGate, certificates: ServingCertificate | None
    ) -> None:
        super().__init__(config, gate, certificates)
        self._closing = asyncio.Event()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Take none."""
        yield

    def close(self) -> None:
        """Take no further connection; :meth:`run_here` returns after what is in flight."""
        self.should_exit = True
        self._closing.set()

    def obstacle(self) -> str:
        """Why it does not listen; empty while it does."""
        if self.started:
            return ""
        folder = "" if self._certificates is None else str(self._certificates.folder)
        return f"no usable certificate in {folder} yet" if folder else "not listening yet"

    async def run_here(self) -> None:
        """Serve on this loop until :meth:`close`; over TLS once there are certificates."""
        if self._certificates is None:
            await self.serve()
            return
        waiting = asyncio.create_task(self._certificates.wait_for_context())
        closing = asyncio.create_task(self._closing.wait())
        try:
            await asyncio.wait({waiting, closing}, return_when=asyncio.FIRST_COMPLETED)
            if self.should_exit:
                return
            waiting.result()
        finally:
            waiting.cancel()
            closing.cancel()
        following = asyncio.create_task(self._certificates.follow())
        try:
            await self.serve()
        finally:
            following.cancel()


def make_server(
    app: ASGIApp,
    *,
    host: str,
    port: int,
    limits: ListenerLimits,
    certificates: ServingCertificate | None = None,
    clients: Collection[str] = (),
) -> ExtenderServer:
    """A server in this process that logs to the process's log.

    Args:
        clients: permitted names in client certificates; empty: every client that TLS accepts.
    """
    gate = ConnectionGate(limits.connections.within_files(), time.monotonic)
    named = ClientNames(app, gate, clients) if clients else app
    config = uvicorn.Config(
        LimitedBodies(named, gate, limits.bodies),
        host=host,
        port=port,
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        ws="none",
        lifespan="off",
        timeout_keep_alive=int(limits.connections.idle),
        timeout_graceful_shutdown=GRACE_SECONDS,
    )
    return ExtenderServer(config, gate, certificates)


class Listeners:
    """The servers of one process.

    Args:
        verbs: the application the scheduler calls.
        probes: makes the one for probes and metrics; called where a port is set for it.
        admission: makes the webhook's; called where a port is set for it.

    Attributes:
        verbs: serves for as long as the process lives.
        metrics: ``None`` where there is no port for it.
        admission: likewise.
    """

    def __init__(
        self,
        settings: ExtenderSettings,
        *,
        verbs: ASGIApp,
        probes: Callable[[], ASGIApp],
        admission: Callable[[], ASGIApp],
    ) -> None:
        every = settings.certificates_reload
        self.verbs = make_server(
            verbs,
            host=settings.host,
            port=settings.port,
            limits=VERBS,
            certificates=_certificate(settings.tls_certificates, every, settings.tls_client_ca),
            clients=settings.client_names,
        )
        self.metrics = self.admission = None
        if settings.metrics_port is not None:
            self.metrics = make_server(
                probes(),
                host=settings.metrics_host,
                port=settings.metrics_port,
                limits=METRICS,
                certificates=_certificate(settings.metrics_certificates, every),
            )
        if settings.webhook_port is not None:
            self.admission = make_server(
                admission(),
                host=settings.host,
                port=settings.webhook_port,
                limits=ADMISSION,
                certificates=_certificate(settings.webhook_certificates, every),
            )

    @property
    def all(self) -> list[ExtenderServer]:
        """The verbs first."""
        return [one for one in (self.verbs, self.metrics, self.admission) if one is not None]

    def obstacle(self) -> str:
        """Why one of them does not listen; empty while all do."""
        return next(filter(None, (server.obstacle() for server in self.all)), "")

    def close(self) -> None:
        """Take no further connection, and end after what is in flight."""
        for server in self.all:
            server.close()


def _certificate(
    folder: Path | None, every: float, clients: Path | None = None
) -> ServingCertificate | None:
    return None if folder is None else ServingCertificate(folder, clients, every)


@asynccontextmanager
async def stop_on_signal(stop: Callable[[], None]) -> AsyncIterator[None]:
    """Call ``stop`` at every SIGTERM and SIGINT."""
    loop = asyncio.get_running_loop()
    signals = (signal.SIGTERM, signal.SIGINT)
    for one in signals:
        loop.add_signal_handler(one, stop)
    try:
        yield
    finally:
        for one in signals:
            loop.remove_signal_handler(one)


class ClientNames:
    """An ASGI application that answers 403 to clients of other names.

    It publishes when the certificates of permitted clients end.

    Args:
        behind: serves the other clients.
        gate: has the connections and their certificates.
    """

    def __init__(self, behind: ASGIApp, gate: ConnectionGate, names: Collection[str]) -> None:
        self._behind, self._gate, self._names = behind, gate, frozenset(names)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        certificate = self._gate.transport_info(scope["client"], "peercert")
        shown = set(names_of(certificate))
        if permitted := self._names & shown:
            ends = ssl.cert_time_to_seconds(certificate["notAfter"])
            metrics.CLIENT_CERTIFICATE_EXPIRY.labels(min(permitted)).set(ends)
            await self._behind(scope, receive, send)
            return
        who = ", ".join(sorted(shown)) or "no name"
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
