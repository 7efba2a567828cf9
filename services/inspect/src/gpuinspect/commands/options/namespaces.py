"""``-n`` and ``-A``: whose pods a command is about; by default those of the context's namespace."""

from typing import Annotated, Final

import typer

from gpuinspect.cluster.collect import ClusterSource
from gpuinspect.commands.options.answers import namespaces as complete_namespaces

DEFAULT: Final = "default"

Namespace = Annotated[
    str,
    typer.Option(
        "-n",
        "--namespace",
        help="namespace; default: that of the context",
        metavar="NAME",
        autocompletion=complete_namespaces,
    ),
]
AllNamespaces = Annotated[
    bool, typer.Option("-A", "--all-namespaces", help="pods of all namespaces")
]


def chosen(source: ClusterSource, namespace: str, *, everywhere: bool = False) -> str:
    """The namespace that is meant; empty for all."""
    if everywhere and namespace:
        raise typer.BadParameter("--namespace and --all-namespaces cannot be combined")
    if everywhere or namespace:
        return namespace
    if source.snapshot is not None:
        return DEFAULT
    from gpukube.kubeconfig.finding import default_namespace  # noqa: PLC0415 - no client needed

    return default_namespace(source.kubeconfig, source.context or "")
