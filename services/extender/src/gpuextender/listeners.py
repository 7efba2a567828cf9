"""Where one process listens: the verbs, and beside them probes and admission where wanted."""

from collections.abc import Callable

from starlette.types import ASGIApp

from gpuextender import limits
from gpuextender.certificates import Certificates
from gpuextender.server import Server, make_server
from gpuextender.settings import Settings


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
        settings: Settings,
        *,
        verbs: ASGIApp,
        probes: Callable[[], ASGIApp],
        admission: Callable[[], ASGIApp],
    ) -> None:
        self.verbs = make_server(
            verbs,
            host=settings.host,
            port=settings.port,
            limits=limits.VERBS,
            certificates=_for_verbs(settings),
            clients=settings.client_names,
        )
        self.metrics = self.admission = None
        if settings.metrics_port is not None:
            self.metrics = make_server(
                probes(),
                host=settings.metrics_host,
                port=settings.metrics_port,
                limits=limits.METRICS,
                certificates=_for_metrics(settings),
            )
        if settings.webhook_port is not None:
            self.admission = make_server(
                admission(),
                host=settings.host,
                port=settings.webhook_port,
                limits=limits.ADMISSION,
                certificates=_for_admission(settings),
            )

    @property
    def all(self) -> list[Server]:
        """The verbs first."""
        return [one for one in (self.verbs, self.metrics, self.admission) if one is not None]

    def close(self) -> None:
        """Take no further connection, and end after what is in flight."""
        for server in self.all:
            server.close()


def _for_verbs(settings: Settings) -> Certificates | None:
    if settings.tls_certificates is None:
        return None
    return Certificates(
        settings.tls_certificates, settings.tls_client_ca, settings.certificates_reload
    )


def _for_metrics(settings: Settings) -> Certificates | None:
    if settings.metrics_certificates is None:
        return None
    return Certificates(settings.metrics_certificates, every=settings.certificates_reload)


def _for_admission(settings: Settings) -> Certificates:
    return Certificates(settings.webhook_certificates, every=settings.certificates_reload)
