"""All flags of ``gpushare serve SERVER``: one signature for its commands, and one request from it.

The flags are spelled in :mod:`gpuinspect.cli.serveflags`, ``servevolumes``, ``serveupkeep`` and
``serveextras``; which of their functions a flag goes to is read from their parameters, so a new one
is written once.
"""

import inspect
from collections.abc import Callable, Mapping
from typing import Any, Final

from gpuinspect.cli.serveextras import extras
from gpuinspect.cli.serveflags import request
from gpuinspect.cli.serveupkeep import upkeep
from gpuinspect.cli.servevolumes import volumes
from gpuinspect.serving.request import Request, Server

FURTHER: Final[tuple[Callable[..., dict[str, Any]], ...]] = (volumes, upkeep, extras)
"""Flags beside those of a request, as values of the chart."""


def parameters() -> list[inspect.Parameter]:
    """Of every flag; the server is the command's own."""
    functions: tuple[Callable[..., Any], ...] = (request, *FURTHER)
    every = [each for one in functions for each in inspect.signature(one).parameters.values()]
    return [parameter for parameter in every if parameter.name != "server"]


def asked(server: Server, flags: Mapping[str, Any]) -> Request:
    """What all flags together ask for.

    Raises:
        FlagError: a text or a file cannot be read.
        RefusedError: what is asked is not to be had here.
    """
    found = request(server, **_own(request, flags))
    for further in FURTHER:
        found = found.over(further(**_own(further, flags)))
    return found


def _own(function: Callable[..., Any], flags: Mapping[str, Any]) -> dict[str, Any]:
    return {name: flags[name] for name in inspect.signature(function).parameters if name in flags}
