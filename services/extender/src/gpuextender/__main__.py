"""The command: settings, an API server, a service, until a signal.

An API server takes seconds to write down a large cluster. So it is asked before anything else, and
what reads its answer and answers questions is loaded meanwhile.
"""

import asyncio
import gc
import sys
from importlib import import_module
from typing import Final

import uvloop
from pydantic import ValidationError
from pydantic_settings import CliApp

from gpuextender.first import FIRST_PATHS
from gpuextender.settings import Settings
from gpukube.client import HttpKubeClient
from gpukube.errors import ConfigError
from gpukube.firstlist import FIRST_LIST

NAME: Final = "gpushare-extender"


def main() -> None:
    """Run the extender: exit 0 after a signal, 2 when the settings make no sense, 1 on failure."""
    try:
        settings = CliApp.run(Settings)
    except ValidationError as error:
        sys.exit(_complain(str(error)))
    try:
        uvloop.run(_run(settings))
    except ConfigError as error:
        sys.exit(_complain(f"no API server: {error}"))


async def _run(settings: Settings) -> None:
    gc.disable()  # nothing is garbage before the cluster is read; the service turns it on
    async with await HttpKubeClient.connect(settings.kubeconfig, user_agent=NAME) as api:
        for path in FIRST_PATHS:
            api.prefetch(path, FIRST_LIST)
        await asyncio.to_thread(import_module, "gpuextender.running")
        await _follow(api, settings)


async def _follow(api: HttpKubeClient, settings: Settings) -> None:
    from gpuextender.running import run  # noqa: PLC0415 - loaded just before

    await run(api, settings)


def _complain(text: str) -> int:
    print(f"{NAME}: {text}", file=sys.stderr)
    return 2


if __name__ == "__main__":
    main()
