"""The command: settings, a client of the API server and the service, until a signal.

An API server takes seconds to encode the pods of a large cluster. So both lists are requested
first, and the modules that read the replies are imported meanwhile.
"""

import asyncio
import gc
import sys
from importlib import import_module
from typing import Final

import uvloop
from pydantic import ValidationError
from pydantic_settings import CliApp

from gpuextender.settings import ExtenderSettings
from gpukube.client import HttpKubeClient
from gpukube.errors import ConfigError
from gpukube.watch.first_list import FIRST_LIST, NODES_PATH, PODS_PATH, UNSCHEDULED

NAME: Final = "gpushare-extender"


def main() -> None:
    """Run the extender: exit 0 after a signal, 2 when the settings make no sense, 1 on failure."""
    try:
        settings = CliApp.run(ExtenderSettings)
    except ValidationError as error:
        sys.exit(_complain(str(error)))
    try:
        uvloop.run(_run(settings))
    except ConfigError as error:
        sys.exit(_complain(f"no API server: {error}"))


async def _run(settings: ExtenderSettings) -> None:
    """Serve until a signal, then finish what is in flight."""
    gc.disable()  # nothing is garbage before the cluster is read; the service turns it on
    async with await HttpKubeClient.connect(settings.kubeconfig, user_agent=NAME) as api:
        pods = UNSCHEDULED if settings.unscheduled_only else {}
        for path, params in ((PODS_PATH, pods), (NODES_PATH, {})):  # the longest first
            api.prefetch(path, params | FIRST_LIST)
        module = "webhookservice" if settings.webhook_only else "service"
        service = await asyncio.to_thread(import_module, f"gpuextender.{module}")
        await service.serve(api, settings)


def _complain(text: str) -> int:
    print(f"{NAME}: {text}", file=sys.stderr)
    return 2


if __name__ == "__main__":
    main()
