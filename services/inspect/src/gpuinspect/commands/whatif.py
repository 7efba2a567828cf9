"""``gpushare whatif``: would these pods fit, and where; also with more nodes."""

import sys
from pathlib import Path
from typing import Annotated, Final

import msgspec
import typer

from gpucore.explain.whatif_documents import what_if_document
from gpucore.steps import complete
from gpuinspect.cluster.ledger import ledger_of
from gpuinspect.cluster.schedulers import placing_gaps, placing_lists, policy_of
from gpuinspect.cluster.scoped import NO_CLAIMS
from gpuinspect.commands.options import answers
from gpuinspect.commands.options.formats import Format, NoHeaders, Output, emit, names_only
from gpuinspect.commands.options.kinds import node_name
from gpuinspect.commands.options.policies import PolicyName, check_policy
from gpuinspect.commands.options.reading import Reader, fail, note_all, reading
from gpuinspect.layout.whatif import whatif as table
from gpuinspect.queries.whatif import Addition, mix_remarks, read_manifest, remarks, whatif_answers
from gpuinspect.terminal.progress import counting

MOST: Final = 100_000
"""Maximum number of pods and of added nodes, which are placed one after the other."""


@reading
def whatif(
    reader: Reader,
    *,
    filename: Annotated[
        Path,
        typer.Option(
            "-f",
            "--filename",
            help="manifest of pods or workloads, DaemonSets included; - is standard input",
            metavar="POD.yaml",
        ),
    ],
    replicas: Annotated[
        int | None,
        typer.Option(help="number of replicas, overriding the manifest", min=1, max=MOST),
    ] = None,
    add_nodes: Annotated[
        int, typer.Option("--add-nodes", help="number of empty nodes to add", min=0, max=MOST)
    ] = 0,
    like: Annotated[
        str,
        typer.Option(
            help="node to copy for --add-nodes",
            metavar="NODE",
            autocompletion=answers.nodes,
            callback=node_name,
        ),
    ] = "",
    policy: PolicyName = "",
    output: Output = Format.TABLE,
    no_headers: NoHeaders = False,
) -> None:
    """Show where new pods would be placed; exit code 1 if one of them does not fit."""
    if bool(add_nodes) != bool(like):
        raise typer.BadParameter("--add-nodes and --like must be used together")
    check_policy(policy)
    if Path("-") == filename == reader.source.snapshot:
        fail("standard input is either the manifest or the snapshot")
    wanted = read_manifest(filename, reader.names)
    if replicas is not None:
        if daemon_sets := [each.pod.name for each in wanted if each.per_node]:
            fail(f"DaemonSet {daemon_sets[0]} has one pod for each matching node: omit --replicas")
        wanted = [msgspec.structs.replace(each, replicas=replicas) for each in wanted]
    if (count := sum(each.replicas for each in wanted)) > MOST:
        fail(f"{count} pods are too many, the most is {MOST}")
    addition = Addition(add_nodes, like)
    snapshot = reader.source.read(*placing_lists())
    ledger, used = ledger_of(snapshot, reader.names), policy_of(snapshot, policy)
    answers = whatif_answers(
        snapshot, wanted, ledger, addition=addition, policy=used, taken=counting("pods placed")
    )
    notes = [
        *remarks(snapshot, wanted, reader.names),
        *mix_remarks(snapshot, wanted, ledger, used),
        *placing_gaps(snapshot, NO_CLAIMS),
    ]
    if output.is_document:
        emit(complete(what_if_document(answers, used, notes)), output)
    elif output is Format.NAME:
        names_only("node", [a.outcome.placement.node for a in answers if a.outcome.placement])
    else:
        sys.stdout.write(table(answers, headers=not no_headers))
        note_all((f"policy {used}", *notes))
    if not all(answer.fits for answer in answers):
        raise typer.Exit(1)
