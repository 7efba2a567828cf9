"""The flags that every reading command shares, spelled as kubectl spells them.

:func:`reading` adds them to a command function and gives it a :class:`Reader` instead; it is also
the one place that turns errors into a sentence on stderr and exit code 1.
"""

import functools
import inspect
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Concatenate, Final, NoReturn, ParamSpec

import msgspec
import typer

from gpucore.wire.errors import WireError
from gpucore.wire.names import Names
from gpuinspect.cluster.collect import ClusterSource
from gpuinspect.commands.options import answers
from gpuinspect.commands.options.amounts import seconds_option
from gpuinspect.errors import FAILURES, sentence
from gpuinspect.terminal import output as terminal
from gpuinspect.terminal.output import wrapped
from gpukube.errors import ConfigError, KubeError

P = ParamSpec("P")
Kubeconfig = Annotated[
    Path | None, typer.Option(help="kubeconfig file; default: as kubectl finds it", metavar="FILE")
]
Context = Annotated[
    str | None,
    typer.Option(help="context of the kubeconfig", metavar="NAME", autocompletion=answers.contexts),
]


def _printable(user: str) -> str:
    if not (user.isascii() and user.isprintable()):
        raise typer.BadParameter("--as takes printable ASCII characters")
    return user


AsUser = Annotated[
    str,
    typer.Option(
        "--as",
        help="user to impersonate, such as system:serviceaccount:team:bot",
        metavar="USER",
        callback=_printable,
    ),
]
SnapshotFile = Annotated[
    Path | None,
    typer.Option(
        help="read this output of 'kubectl get nodes,pods -A -o json' instead of a cluster; - is"
        " standard input",
        metavar="FILE",
    ),
]
Timeout = Annotated[float, seconds_option("timeout of a request in seconds", metavar="SECONDS")]
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
        help="prefix of the original gpushare annotations",
        metavar="PREFIX",
    ),
]


class Reader(msgspec.Struct, frozen=True):
    """Where to read, and under which names."""

    source: ClusterSource
    names: Names


def _flags(
    *,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    as_user: AsUser = "",
    request_timeout: Timeout = 30.0,
    snapshot: SnapshotFile = None,
    resource_domain: Domain = "aliyun.com",
    annotation_prefix: Prefix = "ALIYUN_COM",
) -> Reader:
    source = ClusterSource(kubeconfig, context, snapshot, request_timeout, as_user)
    return Reader(source, Names(resource_domain, annotation_prefix))


_FLAGS: Final = inspect.signature(_flags).parameters
_Command = Callable[Concatenate[Reader, P], None]


def reading(command: _Command[P]) -> Callable[..., None]:
    """``command`` with the shared flags in place of its first parameter."""
    return _with_flags(command, _FLAGS)


def reading_live(command: _Command[P]) -> Callable[..., None]:
    """As :func:`reading`, of a live cluster only."""
    return _with_flags(command, [name for name in _FLAGS if name != "snapshot"])


def connecting(command: _Command[P]) -> Callable[..., None]:
    """As :func:`reading`, with the flags that say how to reach the API server only."""
    return _with_flags(command, ("kubeconfig", "context", "request_timeout"))


def _with_flags(command: _Command[P], flags: Iterable[str]) -> Callable[..., None]:
    names = tuple(flags)

    @functools.wraps(command)
    def wrapper(*args: Any, **kwargs: Any) -> None:
        reader = _flags(**{name: kwargs.pop(name) for name in names})
        with command_errors(reader.source):
            command(reader, *args, **kwargs)

    own = list(inspect.signature(command).parameters.values())[1:]
    by_name = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in own]
    every = [*by_name, *(_FLAGS[name] for name in names)]
    setattr(wrapper, "__signature__", inspect.Signature(every))  # noqa: B010
    return wrapper


@contextmanager
def command_errors(source: ClusterSource) -> Iterator[None]:
    """End with the reason on stderr and exit code 1."""
    try:
        with read_errors(source):
            yield
    except (*FAILURES, WireError) as error:
        fail(error)
    except msgspec.MsgspecError as error:
        fail(f"an object of the cluster cannot be parsed: {error}")


def note(text: str) -> None:
    """A remark for people, after the data that was printed before; later lines are indented."""
    sys.stdout.flush()
    if sys.stderr is None:  # closed by the shell with 2>&-
        return
    sys.stderr.write(wrapped(text, terminal.width(sys.stderr), indent=2))


def note_all(sentences: Iterable[str]) -> None:
    """A line ``note: ...`` for each sentence."""
    for each in sentences:
        note(f"note: {each}")


@contextmanager
def read_errors(source: ClusterSource) -> Iterator[None]:
    """End with three lines where the API server cannot be read."""
    try:
        yield
    except (KubeError, ConfigError) as error:
        fail_to_read(error, source)


def fail_to_read(error: Exception, source: ClusterSource) -> NoReturn:
    """End with what failed between here and the API server, where, and the next step."""
    from gpuinspect.cluster.current_context import current_context  # noqa: PLC0415 - only failures need it
    from gpuinspect.diagnosis import lines  # noqa: PLC0415 - as above

    current = current_context(source)
    if source.as_user:
        current = msgspec.structs.replace(current, user=f"{current.user} as {source.as_user}")
    for line in lines(error, current):
        note(line)
    raise typer.Exit(1)


def fail(reason: object) -> NoReturn:
    """End with a sentence on stderr and exit code 1."""
    note(f"error: {sentence(reason) if isinstance(reason, Exception) else reason}")
    raise typer.Exit(1)
