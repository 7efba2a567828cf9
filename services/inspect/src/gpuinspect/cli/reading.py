"""The flags that every reading command shares, spelled as kubectl spells them.

:func:`reading` adds them to a command function and gives it a :class:`Reader` instead; it is also
the one place that turns errors into a sentence on stderr and exit code 1.
"""

import functools
import inspect
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Concatenate, Final, NoReturn, ParamSpec

import msgspec
import typer

from gpucore.wire.errors import WireError
from gpucore.wire.names import Names
from gpuinspect.cli import terminal
from gpuinspect.collect import Source
from gpuinspect.errors import InspectError
from gpuinspect.layout.wrapping import wrapped

P = ParamSpec("P")
Kubeconfig = Annotated[
    Path | None, typer.Option(help="kubeconfig file; default as kubectl finds it", metavar="FILE")
]
Context = Annotated[str | None, typer.Option(help="context of the kubeconfig", metavar="NAME")]
SnapshotFile = Annotated[
    Path | None,
    typer.Option(
        help="read this output of 'kubectl get nodes,pods -A -o json' instead of a cluster; - is"
        " standard input",
        metavar="FILE",
    ),
]
Timeout = Annotated[
    float, typer.Option(help="seconds one request may take", metavar="SECONDS", min=0.1)
]
Domain = Annotated[
    str,
    typer.Option(
        envvar="GPUSHARE_RESOURCE_DOMAIN", help="domain of the resources", metavar="DOMAIN"
    ),
]

Prefix = Annotated[
    str,
    typer.Option(
        envvar="GPUSHARE_ANNOTATION_PREFIX",
        help="prefix of the first generation's annotations",
        metavar="PREFIX",
    ),
]


class Reader(msgspec.Struct, frozen=True):
    """Where to read, and under which names."""

    source: Source
    names: Names


def _flags(
    *,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    request_timeout: Timeout = 30.0,
    snapshot: SnapshotFile = None,
    resource_domain: Domain = "aliyun.com",
    annotation_prefix: Prefix = "ALIYUN_COM",
) -> Reader:
    source = Source(kubeconfig, context, snapshot, request_timeout)
    return Reader(source, Names(resource_domain, annotation_prefix))


_FLAGS: Final = tuple(inspect.signature(_flags).parameters.values())


def reading(command: Callable[Concatenate[Reader, P], None]) -> Callable[..., None]:
    """``command`` with the shared flags in place of its first parameter."""

    @functools.wraps(command)
    def wrapper(*args: Any, **kwargs: Any) -> None:
        reader = _flags(**{flag.name: kwargs.pop(flag.name) for flag in _FLAGS})
        try:
            command(reader, *args, **kwargs)
        except (InspectError, WireError) as error:
            fail(error)
        except msgspec.MsgspecError as error:
            fail(f"an object of the cluster cannot be read: {error}")

    own = list(inspect.signature(command).parameters.values())[1:]
    by_name = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in own]
    setattr(wrapper, "__signature__", inspect.Signature([*by_name, *_FLAGS]))  # noqa: B010
    return wrapper


def note(text: str) -> None:
    """A remark for people, beside the data; its later lines are indented."""
    sys.stderr.write(wrapped(text, terminal.width(sys.stderr), indent=2))


def fail(reason: object) -> NoReturn:
    """End with a sentence on stderr and exit code 1."""
    note(f"error: {reason}")
    raise typer.Exit(1)
