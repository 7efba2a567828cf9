"""The composition root: settings, adapters, one event loop, an orderly end.

SIGTERM and SIGINT end the process and leave every pod as it is. SIGHUP enumerates and registers
anew.
"""

import asyncio
import os
import signal
import sys
import threading
from collections.abc import Sequence
from typing import Final

import msgspec
import structlog

from gpudeviceplugin.command_line import SettingsError, read
from gpudeviceplugin.gpus.devices import Driver
from gpudeviceplugin.gpus.nvml import Nvml
from gpudeviceplugin.isolation.cgroup_tree import CgroupTree
from gpudeviceplugin.legacy_flags import IGNORED, translated
from gpudeviceplugin.plugin import Plugin
from gpudeviceplugin.settings import DevicePluginSettings
from gpudeviceplugin.stacks import show_on_sigquit
from gpudeviceplugin.threads import ThreadPool
from gpukube.errors import ConfigError
from gpukube.logs import configure_logs

PROGRAM: Final = "gpushare-device-plugin"
END_SECONDS: Final = 5.0
"""Longest time in which the interpreter ends; a wait for an error event takes two seconds."""

log = structlog.get_logger()


async def serve(settings: DevicePluginSettings, driver: Driver) -> None:
    """Run until SIGTERM or SIGINT."""
    loop = asyncio.get_running_loop()
    loop.set_default_executor(ThreadPool(name="asyncio"))
    plugin = await Plugin.make(settings, driver)
    ended = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ended.set)
    loop.add_signal_handler(signal.SIGHUP, plugin.reread)
    running = asyncio.create_task(plugin.run())
    waiting = asyncio.create_task(ended.wait())
    await asyncio.wait({running, waiting}, return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
    if not running.done():
        await plugin.drain()
    running.cancel()
    await asyncio.wait({running})
    await plugin.close()
    if not running.cancelled():
        running.result()


def _nvml(settings: DevicePluginSettings) -> Nvml:
    """The driver; its memory limits are queried only where the setting enables them."""
    if not settings.driver_limits:
        return Nvml()
    return Nvml(CgroupTree(settings.cgroup_root, settings.cgroup_parent).pods)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the device plugin; exit status 0 after a signal, 1 on a failure, 2 on wrong settings."""
    given = translated(sys.argv[1:] if arguments is None else arguments)
    try:
        settings = read(DevicePluginSettings, given.ours, os.environ, program=PROGRAM)
    except SettingsError as error:
        print(*(f"{PROGRAM}: {fault}" for fault in error.faults), sep="\n", file=sys.stderr)
        return 2
    configure_logs(settings.log_level)
    structlog.contextvars.bind_contextvars(node=settings.node_name)
    show_on_sigquit()
    for name in given.ignored:
        log.info("a flag of the original plugin changes nothing", flag=name, why=IGNORED[name])
    log.info("starting", **msgspec.to_builtins(settings, enc_hook=str))
    status = 1
    try:
        asyncio.run(serve(settings, _nvml(settings)))
        status = 0
    except ConfigError as error:
        log.error("cannot start", why=str(error))  # noqa: TRY400 - the message is complete without
        # a traceback
    finally:
        _end_soon(status)
    return status


def _end_soon(status: int) -> None:
    """End the process though a call to the driver hangs, for whose thread Python would wait.

    Its successor starts only when it has ended, and kubelet waits long before it kills.
    """
    end = threading.Timer(END_SECONDS, os._exit, [status])
    end.daemon = True
    end.start()


if __name__ == "__main__":
    sys.exit(main())
