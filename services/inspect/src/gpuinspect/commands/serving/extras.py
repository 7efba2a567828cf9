"""The flags of ``gpushare serve SERVER`` for other devices, secrets and Triton's own options.

As in :mod:`gpuinspect.commands.serving.flags`, :func:`extras` is never called by name.
"""

from typing import Annotated, Any, Final

import typer

from gpuinspect.serving.errors import FlagError
from gpuinspect.serving.flagtexts import pairs

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
