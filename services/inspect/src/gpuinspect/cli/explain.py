"""``gpushare explain pod``: why a pod waits, or why it sits where it sits."""

import sys
from typing import Annotated

import typer

from gpuinspect.cli import terminal
from gpuinspect.cli.formats import Format, Output, emit, names_only
from gpuinspect.cli.policies import PolicyName, check_policy
from gpuinspect.cli.reading import Reader, fail, reading
from gpuinspect.collect import CONFIG_MAPS, Wanted
from gpuinspect.explaindocuments import pod_explanation
from gpuinspect.explaining import explain as explain_pod
from gpuinspect.explaining import find
from gpuinspect.layout.explanation import explanation
from gpuinspect.schedulers import SCHEDULER_CONFIGS, WEBHOOKS
from gpuinspect.state import books

app = typer.Typer(no_args_is_help=True, add_completion=False, rich_markup_mode=None)


@app.callback()
def explain() -> None:
    """Say why something is as it is."""


@app.command("pod")
@reading
def pod(
    reader: Reader,
    name: Annotated[str, typer.Argument(help="the pod, with or without namespace")],
    *,
    namespace: Annotated[
        str, typer.Option("-n", "--namespace", help="its namespace, where NAME says none")
    ] = "default",
    policy: PolicyName = "",
    output: Output = Format.TABLE,
) -> None:
    """Say why a pod waits, node by node in groups, or where it sits; and what would help."""
    namespace, _, name = name.rpartition("/") if "/" in name else (namespace, "", name)
    if not name or not namespace or "/" in namespace:
        fail("a pod is NAME or NAMESPACE/NAME")
    check_policy(policy)
    lists = (CONFIG_MAPS, SCHEDULER_CONFIGS, WEBHOOKS, _events(namespace, name))
    snapshot = reader.source.read(*lists)
    asked = find(snapshot, namespace=namespace, name=name)
    found = explain_pod(snapshot, asked, books(snapshot, reader.names), policy=policy)
    if output in {Format.JSON, Format.YAML}:
        emit(pod_explanation(found), output)
    elif output is Format.NAME:
        names_only("node", found.fits)
    else:
        wide = output is Format.WIDE
        sys.stdout.write(explanation(found, wide=wide, width=terminal.width()))


def _events(namespace: str, name: str) -> Wanted:
    return Wanted(
        "Event",
        f"/api/v1/namespaces/{namespace}/events",
        {"fieldSelector": f"involvedObject.kind=Pod,involvedObject.name={name}"},
    )
