"""``gpushare serve``: a model server on a share of a GPU; list, get, delete.

One command a server, all with the flags of :mod:`gpuinspect.commands.serving.request`. Creating and
deleting is Helm's work, reading is done here.
"""

import functools
import inspect
import sys
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Annotated, Any, Final, ParamSpec

import msgspec
import typer

from gpucore.wire.errors import WireError
from gpuinspect.commands.options import answers
from gpuinspect.commands.options.formats import Format, NoHeaders, Output, emit, names_only
from gpuinspect.commands.options.namespaces import READ_ALL, AllNamespaces, Namespace, chosen
from gpuinspect.commands.options.reading import (
    Context,
    Kubeconfig,
    Reader,
    fail,
    note,
    reading_live,
)
from gpuinspect.commands.serving.request import parameters, serving_request
from gpuinspect.errors import FAILURES, FlagError, MissingObjectError, RefusedError
from gpuinspect.layout import serving as layout
from gpuinspect.serving.documents import serving_list
from gpuinspect.serving.elsewhere import COMMANDS as ELSEWHERE
from gpuinspect.serving.engine import Helm, ReleasePlace
from gpuinspect.serving.request import ServerKind, ServingRequest
from gpuinspect.serving.selection import selected
from gpuinspect.serving.served import instances, servings

P = ParamSpec("P")
CHART: Final = "gpu-serving"
NOTHING: Final = "nothing is served"
EXAMPLES: Final = {
    ServerKind.TENSORFLOW: (
        "--name mnist --model-name mnist --model-path /models/mnist",
        "--data models:/models --gpumemory 3",
    ),
    ServerKind.TRITON: (
        "--name vision --model-repository s3://bucket/models",
        "--gpumemory 8 --gpucore 30",
    ),
    ServerKind.TORCHSERVE: (
        "--name cats --model-name cats --model-path /store",
        "--data store:/store --gpumemory 6 --processes 2",
    ),
    ServerKind.VLLM: (
        "--name chat --model-name chat --model-path Qwen/Qwen2.5-7B-Instruct",
        "--gpumemory 24 --arg --max-model-len=8192",
    ),
    ServerKind.CUSTOM: (
        "--name own --image registry.example.com/own:1 --command 'python3 serve.py'",
        "--restful-port 8000 --gpumemory 4",
    ),
}
"""A command line of each, in two lines."""
SUMMARIES: Final = {
    ServerKind.TENSORFLOW: "Serve a TensorFlow model with TensorFlow Serving.",
    ServerKind.TRITON: "Serve a model repository with Triton.",
    ServerKind.TORCHSERVE: "Serve a PyTorch model with TorchServe.",
    ServerKind.VLLM: "Serve a language model with vLLM.",
    ServerKind.CUSTOM: "Serve with an image and a command of your own.",
}

app = typer.Typer(no_args_is_help=True, add_completion=False, rich_markup_mode=None)
DryRun = Annotated[bool, typer.Option("--dry-run", help="print the manifests; change nothing")]
ServedName = Annotated[
    str,
    typer.Argument(
        help="the model server's --name", metavar="NAME", autocompletion=answers.servings
    ),
]

ServedType = Annotated[
    str,
    typer.Option(
        "-T",
        "--type",
        help="only model servers of a type, such as tf or custom",
        autocompletion=answers.one_of(ServerKind),
    ),
]
ServedVersion = Annotated[
    str, typer.Option("-v", "--version", help="only the model server of this version")
]
ArenaEverywhere = Annotated[
    bool, typer.Option("--allNamespaces", hidden=True, help="arena's older --all-namespaces")
]


@app.callback()
def serve() -> None:
    """Serve a model on a share of a GPU, or on exclusive GPUs; see what is served; end it."""


def reports_errors(command: Callable[P, None]) -> Callable[P, None]:
    """``command`` with errors as sentences: exit code 2 where a flag cannot be read, else 1."""

    @functools.wraps(command)
    def wrapper(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            command(*args, **kwargs)
        except FlagError as error:
            raise typer.BadParameter(str(error)) from error
        except (*FAILURES, WireError) as error:
            fail(error)

    return wrapper


def create(
    server: ServerKind,
    flags: dict[str, Any],
    given: Collection[str],
    *,
    namespace: Namespace = "",
    dry_run: DryRun = False,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
) -> None:
    """Install a release for the flags, or print it; ``given`` are those on the command line.

    Raises:
        InspectError: the request is invalid, or Helm or the cluster refuses it.
    """
    wanted = serving_request(server, flags, given)
    if refusal := wanted.refusal():
        raise RefusedError(refusal)
    helm = Helm.at(_place(namespace, kubeconfig, context))
    if dry_run:
        sys.stdout.buffer.write(helm.render(wanted.name, wanted.values()).encode())  # for kubectl
        return
    if helm.chart_of(wanted.name):
        raise RefusedError(
            f"there is a release {wanted.name} in namespace {helm.place.namespace} already: delete "
            f"it first (gpushare serve delete {wanted.name}), or choose another --name"
        )
    helm.install(wanted.name, wanted.values())
    _created(wanted, helm.place.namespace)


def _created(wanted: ServingRequest, namespace: str) -> None:
    deployment = f"deployment/{wanted.name}-{wanted.server}-serving"
    sys.stdout.write(f"{deployment} created\n")
    note(f"note: to wait for it: kubectl rollout status {deployment} -n {namespace}")


def _place(namespace: str, kubeconfig: Path | None, context: str | None) -> ReleasePlace:
    from gpukube.kubeconfig.finding import default_namespace  # noqa: PLC0415 - help needs no client

    found = namespace or default_namespace(kubeconfig, context or "")
    return ReleasePlace(found, kubeconfig, context or "")


def _command(server: ServerKind) -> Callable[..., None]:
    """The command of one server: all flags and those of :func:`create`."""
    where_to = list(inspect.signature(create).parameters.values())[3:]
    caller = inspect.Parameter("ctx", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context)

    def command(*, ctx: typer.Context, **flags: Any) -> None:
        own = {parameter.name: flags.pop(parameter.name) for parameter in where_to}
        reports_errors(create)(server, flags, _on_command_line(ctx), **own)

    every = [*parameters(), *where_to, caller]
    setattr(command, "__signature__", inspect.Signature(every))  # noqa: B010
    return command


def _on_command_line(ctx: typer.Context) -> list[str]:
    """Names of the flags that are given, not left at their default."""
    sources = {name: ctx.get_parameter_source(name) for name in ctx.params}
    return [name for name, source in sources.items() if source and source.name == "COMMANDLINE"]


def _epilog(server: ServerKind, first: str, second: str) -> str:
    """The example as it can be pasted: the mark keeps its lines from being wrapped."""
    return f"\b\nExample:\n  gpushare serve {server} \\\n    {first} \\\n    {second}"


for _server, _example in EXAMPLES.items():
    app.command(
        str(_server),
        help=SUMMARIES[_server],
        epilog=_epilog(_server, *_example),
    )(_command(_server))
app.command("tf", hidden=True, help="Arena's short name of tensorflow.")(
    _command(ServerKind.TENSORFLOW)
)
app.command("tensorrt", hidden=True, help="Arena's older name of triton.")(
    _command(ServerKind.TRITON)
)


def _refused(name: str, sentence: str) -> Callable[[], None]:
    """A command of arena that only prints what to use instead."""

    @reports_errors
    def command() -> None:
        raise RefusedError(f"serve {name} {sentence}")

    return command


for _name, _sentence in ELSEWHERE.items():
    app.command(
        _name,
        hidden=True,
        help=f"Not here: {_sentence}.",
        add_help_option=False,
        context_settings={"ignore_unknown_options": True, "allow_extra_args": True},
    )(_refused(_name, _sentence))


@app.command("list")
@reading_live
def list_servings(
    reader: Reader,
    *,
    namespace: Namespace = "",
    all_namespaces: AllNamespaces = False,
    arena_everywhere: ArenaEverywhere = False,
    serving_type: ServedType = "",
    output: Output = Format.TABLE,
    no_headers: NoHeaders = False,
) -> None:
    """List model servers deployed by this command and by arena."""
    everywhere = all_namespaces or arena_everywhere
    where = chosen(reader.source, namespace, everywhere=everywhere)
    every = servings(reader.source.connect(), reader.names, where)
    found = [each.doc for each in selected(every, serving_type)]
    if output.is_document:
        emit(serving_list(found), output)
    elif output is Format.NAME:
        names_only("deployment", (each.deployment for each in found))
    elif found:
        headers = not no_headers
        sys.stdout.write(layout.servings(found, namespaces=everywhere, headers=headers))
    else:
        nothing = f"nothing of type {serving_type} is served" if serving_type else NOTHING
        note(f"{nothing} in namespace {where}; {READ_ALL}" if where else nothing)


@app.command("get")
@reading_live
def get_serving(
    reader: Reader,
    name: ServedName,
    *,
    namespace: Namespace = "",
    serving_type: ServedType = "",
    version: ServedVersion = "",
    output: Output = Format.TABLE,
) -> None:
    """Show one model server: its endpoints, its pods and their GPUs."""
    where, names, kube = chosen(reader.source, namespace), reader.names, reader.source.connect()
    deployment = name.partition("deployment/")[2]  # as list -o name prints it
    every = servings(kube, names, where, "" if deployment else name)
    every = [each for each in every if deployment in {"", each.doc.deployment}]
    found = selected(every, serving_type, version)
    served = [
        msgspec.structs.replace(each.doc, instances=instances(kube, names, each)) for each in found
    ]
    if not served:
        limits = {"--type": serving_type, "--version": version}
        given = "".join(f" with {flag} {value}" for flag, value in limits.items() if value)
        raise MissingObjectError(f"{name} is not served in namespace {where}{given}")
    if output.is_document:
        emit(serving_list(served), output)
    elif output is Format.NAME:
        names_only("pod", (pod.name for each in served for pod in each.instances))
    else:
        sys.stdout.write("\n".join(map(layout.serving, served)))


@app.command("delete")
@reports_errors
def delete_serving(
    name: ServedName,
    *,
    namespace: Namespace = "",
    kubeconfig: Kubeconfig = None,
    context: Context = None,
) -> None:
    """Delete a model server and release its share."""
    helm = Helm.at(_place(namespace, kubeconfig, context))
    chart = helm.chart_of(name)
    if not chart:
        raise RefusedError(f"{name} is not served in namespace {helm.place.namespace}")
    if chart != CHART:
        raise RefusedError(f"the release {name} is of chart {chart}, not made by this command")
    helm.uninstall(name)
    sys.stdout.write(f"{name} deleted\n")
