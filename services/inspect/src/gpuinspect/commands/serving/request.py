"""All flags of ``gpushare serve SERVER``: one signature for its commands, and one request from it.

The flags are spelled in :mod:`gpuinspect.commands.serving.flags`, ``volumes`` and ``upkeep``, and
here those for other devices, secrets and Triton's own options. Which of the functions a flag goes
to is read from their parameters, so a new one is written once.
"""

import inspect
from collections.abc import Callable, Collection, Mapping
from typing import Annotated, Any, Final

import typer

from gpuinspect.commands.serving.flags import PLACES, default_of, request
from gpuinspect.commands.serving.upkeep import upkeep
from gpuinspect.commands.serving.volumes import volumes
from gpuinspect.errors import FlagError
from gpuinspect.serving.flagtexts import pairs
from gpuinspect.serving.request import ServerKind, ServingRequest

Texts = list[str]
BACKENDS: Final = ("vllm", "trt-llm")
MODEL_VERSION: Final = "modelVersion"
"""The label in which arena keeps it."""

Device = Annotated[
    Texts,
    typer.Option(
        help="further device of each replica, such as amd.com/gpu=1", metavar="RESOURCE=COUNT"
    ),
]
EnvFromSecret = Annotated[
    Texts,
    typer.Option(
        help="variable of the server, taken from the key of the same name in a Secret",
        metavar="NAME=SECRET",
    ),
]
ModelVersion = Annotated[
    str, typer.Option(help="version of the model, as the label modelVersion", metavar="VERSION")
]
LoadModel = Annotated[
    Texts,
    typer.Option(help="model that Triton loads at start, in place of all", metavar="MODEL"),
]
Backend = Annotated[
    str,
    typer.Option(help=f"image of Triton with this backend: {' or '.join(BACKENDS)}; with --gpus"),
]


def extras(
    *,
    device: Device = [],  # noqa: B006 - typer copies it
    env_from_secret: EnvFromSecret = [],  # noqa: B006 - as above
    model_version: ModelVersion = "",
    load_model: LoadModel = [],  # noqa: B006 - as above
    backend: Backend = "",
) -> dict[str, Any]:
    """Values of the chart; none for flags that are not given.

    Raises:
        FlagError: a text is not of its form.
    """
    if backend and backend not in BACKENDS:
        raise FlagError(f"--backend is '{backend}': use {' or '.join(BACKENDS)}")
    devices = pairs("--device", device)
    for name, count in devices.items():
        if not count.isdecimal() or not int(count):
            raise FlagError(f"--device is '{name}={count}': write RESOURCE=COUNT, from 1")
    given = {
        "devices": devices,
        "envsFromSecret": pairs("--env-from-secret", env_from_secret),
        "labels": {MODEL_VERSION: model_version} if model_version else {},
        "loadModels": list(load_model),
        "backend": backend,
    }
    return {name: value for name, value in given.items() if value}


FURTHER: Final[tuple[Callable[..., dict[str, Any]], ...]] = (volumes, upkeep, extras)
"""Flags beside those of a request, as values of the chart."""


def parameters() -> list[inspect.Parameter]:
    """Of every flag; the server is the command's own."""
    functions: tuple[Callable[..., Any], ...] = (request, *FURTHER)
    every = [each for one in functions for each in inspect.signature(one).parameters.values()]
    return [parameter for parameter in every if parameter.name != "server"]


def serving_request(
    server: ServerKind, flags: Mapping[str, Any], given: Collection[str]
) -> ServingRequest:
    """The request that all flags together describe.

    Args:
        flags: all of them, those at their default included.
        given: names of those that are on the command line. At its default, such a flag removes
            the value of the file, so that the chart's own default applies.

    Raises:
        FlagError: a text or a file cannot be read.
        RefusedError: gpushare does not support the request.
    """
    found = request(server, **_own(request, flags))
    for name in PLACES.keys() & set(given):
        if flags[name] == default_of(name):
            found = found.without(PLACES[name])
    for further in FURTHER:
        found = found.over(further(**_own(further, flags)))
    return found


def _own(function: Callable[..., Any], flags: Mapping[str, Any]) -> dict[str, Any]:
    return {name: flags[name] for name in inspect.signature(function).parameters if name in flags}
