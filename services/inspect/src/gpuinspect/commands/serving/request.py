"""All flags of ``gpushare serve SERVER``: one signature for its commands, and one request from it.

The flags are spelled in :mod:`gpuinspect.commands.serving.flags`, ``servevolumes``, ``serveupkeep``
and ``serveextras``; which of their functions a flag goes to is read from their parameters, so a new
one is written once.
"""

import inspect
from collections.abc import Callable, Mapping
from typing import Any, Final

from gpuinspect.commands.serving.extras import extras
from gpuinspect.commands.serving.flags import request
from gpuinspect.commands.serving.upkeep import upkeep
from gpuinspect.commands.serving.volumes import volumes
from gpuinspect.serving.request import ServerKind, ServingRequest

FURTHER: Final[tuple[Callable[..., dict[str, Any]], ...]] = (volumes, upkeep, extras)
"""Flags beside those of a request, as values of the chart."""


def parameters() -> list[inspect.Parameter]:
    """Of every flag; the server is the command's own."""
    functions: tuple[Callable[..., Any], ...] = (request, *FURTHER)
    every = [each for one in functions for each in inspect.signature(one).parameters.values()]
    return [parameter for parameter in every if parameter.name != "server"]


def serving_request(server: ServerKind, flags: Mapping[str, Any]) -> ServingRequest:
    """The request that all flags together describe.

    Raises:
        FlagError: a text or a file cannot be read.
        RefusedError: gpushare does not support the request.
    """
    found = request(server, **_own(request, flags))
    for further in FURTHER:
        found = found.over(further(**_own(further, flags)))
    return found


def _own(function: Callable[..., Any], flags: Mapping[str, Any]) -> dict[str, Any]:
    return {name: flags[name] for name in inspect.signature(function).parameters if name in flags}
