"""``gpushare whatif``: would these pods fit, and where; also with more nodes."""

import sys
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from gpuinspect import manifests
from gpuinspect.asking import Addition, ask, remarks
from gpuinspect.cli.formats import Format, NoHeaders, Output, emit, names_only
from gpuinspect.cli.policies import PolicyName, check_policy
from gpuinspect.cli.reading import Reader, fail, note, reading
from gpuinspect.collect import CONFIG_MAPS
from gpuinspect.layout.whatif import whatif as table
from gpuinspect.schedulers import SCHEDULER_CONFIGS, WEBHOOKS, policy_of
from gpuinspect.state import books
from gpuinspect.whatifdocuments import what_if_doc


@reading
def whatif(
    reader: Reader,
    *,
    filename: Annotated[
        Path,
        typer.Option("-f", "--filename", help="manifest of pods or workloads", metavar="POD.yaml"),
    ],
    replicas: Annotated[
        int | None, typer.Option(help="how many of each, whatever the manifest says", min=1)
    ] = None,
    add_nodes: Annotated[
        int, typer.Option("--add-nodes", help="and if so many empty nodes were added", min=0)
    ] = 0,
    like: Annotated[str, typer.Option(help="the node they are made like", metavar="NODE")] = "",
    policy: PolicyName = "",
    output: Output = Format.TABLE,
    no_headers: NoHeaders = False,
) -> None:
    """Say where pods would go if they came now; exit code 1 when one of them fits nowhere."""
    if bool(add_nodes) != bool(like):
        raise typer.BadParameter("--add-nodes and --like go together")
    check_policy(policy)
    if Path("-") == filename == reader.source.snapshot:
        fail("standard input is either the manifest or the snapshot")
    wanted = manifests.read(filename, reader.names)
    if replicas is not None:
        wanted = [msgspec.structs.replace(each, replicas=replicas) for each in wanted]
    addition = Addition(add_nodes, like)
    snapshot = reader.source.read(CONFIG_MAPS, SCHEDULER_CONFIGS, WEBHOOKS)
    ledger, used = books(snapshot, reader.names), policy_of(snapshot, policy)
    answers = ask(snapshot, wanted, ledger, addition=addition, policy=used)
    notes = list(remarks(snapshot, wanted, reader.names))
    if output in {Format.JSON, Format.YAML}:
        emit(what_if_doc(answers, used, notes), output)
    elif output is Format.NAME:
        names_only("node", [a.outcome.placement.node for a in answers if a.outcome.placement])
    else:
        sys.stdout.write(table(answers, headers=not no_headers))
        sys.stdout.flush()
        for sentence in (f"policy {used}", *notes):
            note(f"note: {sentence}")
    if not all(answer.fits for answer in answers):
        raise typer.Exit(1)
