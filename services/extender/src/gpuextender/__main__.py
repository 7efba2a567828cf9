"""The command: settings, an API server, a service, until a signal."""

import sys

import structlog
import uvloop
from kubernetes.aio.config import ConfigException
from pydantic import ValidationError
from pydantic_settings import CliApp

from gpuextender import VERSION
from gpuextender.kube import KubeApi
from gpuextender.server import stop_on_signal
from gpuextender.service import Service
from gpuextender.settings import Settings
from gpuextender.telemetry import configure_logs

log = structlog.get_logger(__name__)


def main() -> None:
    """Run the extender: exit 0 after a signal, 2 when the settings make no sense, 1 on failure."""
    try:
        settings = CliApp.run(Settings)
    except ValidationError as error:
        sys.exit(_complain(str(error)))
    configure_logs(settings.log_level)
    try:
        uvloop.run(_run(settings))
    except ConfigException as error:
        sys.exit(_complain(f"no API server: {error}"))


async def _run(settings: Settings) -> None:
    log.info("settings", version=VERSION, **settings.model_dump(mode="json"))
    async with await KubeApi.connect(settings.kubeconfig) as api:
        service = Service(api, settings)
        async with stop_on_signal(service.stop):
            await service.run()


def _complain(text: str) -> int:
    print(f"gpushare-extender: {text}", file=sys.stderr)
    return 2


if __name__ == "__main__":
    main()
