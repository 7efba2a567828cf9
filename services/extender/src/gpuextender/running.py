"""One service from its logs to its signals: what runs once the API server was asked."""

import structlog

from gpuextender import VERSION
from gpuextender.server import stop_on_signal
from gpuextender.service import Service
from gpuextender.settings import Settings
from gpuextender.telemetry import configure_logs
from gpukube.client import KubeClient
from gpukube.listening import raise_file_limit

log = structlog.get_logger(__name__)


async def run(api: KubeClient, settings: Settings) -> None:
    """Serve until a signal, then finish what is in flight."""
    configure_logs(settings.log_level)
    log.info("settings", version=VERSION, **settings.model_dump(mode="json"))
    raise_file_limit()
    service = Service(api, settings)
    async with stop_on_signal(service.stop):
        await service.run()
