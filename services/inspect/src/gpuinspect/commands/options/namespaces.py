"""``-n`` and ``-A``: whose pods a command is about; by default those of the context's namespace."""

from typing import Annotated, Final

import typer

from gpuinspect.cluster.collect import ClusterSource
from gpuinspect.commands.options.answers import namespaces as complete_namespaces
from gpuinspect.commands.options.kinds import namespace_name

DEFAULT: Final = "default"
READ_ALL: Final = "-A reads all namespaces"
"""The next step where the namespace that was read has nothing to show."""

Namespace = Annotated[
    str,
    typer.Option(
        "-n",
        "--namespace",
        help="namespace; default: that of the context",
        metavar="NAME",
        autocompletion=complete_namespaces,
        callback=namespace_name,
    ),
]
AllNamespaces = Annotated[
    bool, typer.Option("-A", "--all-namespaces", help="all namespaces in place of one")
]

OwnNamespace = Annotated[
    str,
    typer.Option(
        "-n",
        "--namespace",
        help="only pods of this namespace, with -d",
        metavar="NAME",
        autocompletion=complete_namespaces,
        callback=namespace_name,
    ),
]
"""For tables of nodes, which show the pods of all namespaces unless one is named."""
EveryNamespace = Annotated[
    bool, typer.Option("-A", "--all-namespaces", help="pods of all namespaces (default)")
]


def named_namespace(namespace: str, *, everywhere: bool) -> str:
    """The namespace that is named; empty for none.

    Raises:
        typer.BadParameter: both flags are given.
    """
    if everywhere and namespace:
        raise typer.BadParameter("--namespace and --all-namespaces cannot be combined")
    return namespace


def chosen(source: ClusterSource, namespace: str, *, everywhere: bool = False) -> str:
    """The namespace that is meant, that of the context by default; empty for all."""
    if named_namespace(namespace, everywhere=everywhere) or everywhere:
        return namespace
    if source.snapshot is not None:
        return DEFAULT
    from gpukube.kubeconfig.finding import default_namespace  # noqa: PLC0415 - no client needed

    return default_namespace(source.kubeconfig, source.context or "")
