"""The command: settings, an API server, a service, until a signal.

An API server takes seconds to write down a large cluster. It is asked first, and what answers
questions is loaded meanwhile.
"""

import asyncio
import gc
import sys
from importlib import import_module

import structlog
import uvloop
from pydantic import ValidationError
from pydantic_settings import CliApp

from gpuextender import VERSION
from gpuextender.following import Following
from gpuextender.kube import KubeApi
from gpuextender.kubeerrors import AccessError
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
    except AccessError as error:
        sys.exit(_complain(f"no API server: {error}"))


async def _run(settings: Settings) -> None:
    log.info("settings", version=VERSION, **settings.model_dump(mode="json"))
    gc.disable()  # nothing is garbage before the cluster is read; the service turns it on
    async with await KubeApi.connect(settings.kubeconfig) as api:
        following = Following(api, settings)
        following.start()
        await asyncio.to_thread(import_module, "gpuextender.service")
        await _serve(api, settings, following)


async def _serve(api: KubeApi, settings: Settings, following: Following) -> None:
    from gpuextender.server import stop_on_signal  # noqa: PLC0415 - loaded just before
    from gpuextender.service import Service  # noqa: PLC0415

    service = Service(api, settings, following)
    async with stop_on_signal(service.stop):
        await service.run()


def _complain(text: str) -> int:
    print(f"gpushare-extender: {text}", file=sys.stderr)
    return 2


if __name__ == "__main__":
    main()
