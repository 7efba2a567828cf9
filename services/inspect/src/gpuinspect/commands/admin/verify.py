"""``gpushare verify``: proof on the GPUs of this cluster that shares are what they promise."""

import sys
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Final

import msgspec
import typer

from gpuinspect.commands.options.answers import namespaces as complete_namespaces
from gpuinspect.commands.options.answers import nodes as complete_nodes
from gpuinspect.commands.options.answers import some_of
from gpuinspect.commands.options.formats import AnyFormat, NoHeaders, emit, names_only
from gpuinspect.commands.options.kinds import node_name
from gpuinspect.commands.options.reading import Reader, command_errors, note, reading
from gpuinspect.documents.verify import VerifyReport, holds, junit, verify_report
from gpuinspect.terminal import output as terminal
from gpuinspect.terminal.output import table as aligned
from gpuinspect.terminal.output import wrapped
from gpuinspect.verify.rows import RowOutcome
from gpuinspect.verify.run import VerifyRun, VerifySettings
from gpuinspect.verify.run import verify as run_verify
from gpuinspect.verify.targets import ProofTarget
from gpuprobe.checks.verdicts import QUICK, ROWS, Proof, ProofVerdict

if TYPE_CHECKING:  # the import takes a while
    from gpukube.blocking import BlockingClient

INTERRUPTED: Final = 130
"""Exit code after Ctrl-C."""


class VerifyFormat(AnyFormat):
    """Value of ``-o``: the formats of all commands, and one for CI systems."""

    TABLE = "table"
    WIDE = "wide"
    JSON = "json"
    YAML = "yaml"
    NAME = "name"
    JUNIT = "junit"


class _Version(msgspec.Struct, rename="camel"):
    git_version: str = ""


@reading
def verify(
    reader: Reader,
    *,
    node: Annotated[
        str,
        typer.Option(
            help="only this node; default: every node that shares GPUs",
            metavar="NAME",
            autocompletion=complete_nodes,
            callback=node_name,
        ),
    ] = "",
    gpu: Annotated[
        int | None,
        typer.Option(
            help="only the GPU with this index; default: one GPU of each model of a node", min=0
        ),
    ] = None,
    namespace: Annotated[
        str,
        typer.Option(
            "-n",
            "--namespace",
            help="existing namespace for the pods; default: one that is created and deleted",
            metavar="NAME",
            autocompletion=complete_namespaces,
        ),
    ] = "",
    only: Annotated[
        str,
        typer.Option(
            help=f"rows separated by commas: {', '.join(ROWS)}, or quick for {', '.join(QUICK)}",
            metavar="ROWS",
            autocompletion=some_of([*ROWS, "quick"]),
        ),
    ] = "",
    starts: Annotated[int, typer.Option(help="number of pods of the row start", min=1)] = 20,
    timeout: Annotated[
        int, typer.Option(help="seconds after which the run ends and removes its objects", min=30)
    ] = 900,
    keep: Annotated[
        bool, typer.Option("--keep", help="leave all objects until the time of --timeout")
    ] = False,
    record: Annotated[
        bool,
        typer.Option(
            "--record",
            help="write the results to the device plugin's pods, for metrics, and as node events",
        ),
    ] = False,
    image: Annotated[
        str,
        typer.Option(
            help="image with gpuprobe; default: that of the device plugin", metavar="IMAGE"
        ),
    ] = "",
    scheduler: Annotated[
        str,
        typer.Option(help="scheduler of the pods; default: the webhook sets it", metavar="NAME"),
    ] = "",
    runtime_class: Annotated[
        str,
        typer.Option(
            help="RuntimeClass of the pods, where the default runtime brings no driver",
            metavar="NAME",
        ),
    ] = "",
    output: Annotated[
        VerifyFormat,
        typer.Option("-o", "--output", help="output format; json and yaml have no names"),
    ] = VerifyFormat.TABLE,
    no_headers: NoHeaders = False,
) -> None:
    """Run small pods on free GPU shares and check what they get; exit code 1 when a row fails."""
    if reader.source.snapshot is not None:
        raise typer.BadParameter("verify needs a cluster: a snapshot runs no pods")
    wanted = VerifySettings(
        rows=_rows(only),
        node=node,
        gpu=gpu,
        namespace=namespace,
        image=image,
        scheduler=scheduler,
        runtime_class=runtime_class,
        seconds=timeout,
        starts=starts,
        keep=keep,
        record=record,
    )
    with reader.source.connect() as kube:
        kubernetes = msgspec.json.decode(kube.get("/version"), type=_Version).git_version
        found = _run(reader, kube, wanted)
    _print(found, output, kubernetes, headers=not no_headers)
    if found.unrecorded:
        note(f"error: {'; '.join(found.unrecorded)}")
    _note_left(found)
    if found.left or found.unrecorded or not holds(found):
        raise typer.Exit(1)


def _run(reader: Reader, kube: "BlockingClient", wanted: VerifySettings) -> VerifyRun:
    """The run; where it ended early, what it left is printed after the reason."""
    unfinished: list[VerifyRun] = []
    try:
        with command_errors(reader.source):
            return run_verify(kube, reader.names, wanted, _progress, unfinished.append)
    except KeyboardInterrupt:
        note("error: interrupted")
        raise typer.Exit(INTERRUPTED) from None
    finally:
        for each in unfinished:
            _note_left(each)


def _note_left(found: VerifyRun) -> None:
    """The last line: the command that deletes what is left."""
    if found.left:
        note(f"error: left behind, delete it: {found.left}")
    if found.kept:
        note(f"kept until its deadline, or: {found.kept}")


def _rows(only: str) -> tuple[str, ...]:
    """The rows that are named, in the order of the table."""
    if not only:
        return tuple(ROWS)
    named = {each.strip() for each in only.split(",")}
    named = named - {"quick"} | set(QUICK) if "quick" in named else named
    if unknown := sorted(named - ROWS.keys()):
        raise typer.BadParameter(f"{unknown[0]!r} is none of {', '.join(ROWS)}, quick")
    return tuple(row for row in ROWS if row in named)


def _progress(target: ProofTarget, proof: Proof) -> None:
    """Print a row as soon as it is known."""
    note(f"{target.node} GPU {target.index}: {proof.row}: {proof.verdict.value}")


def _print(found: VerifyRun, output: VerifyFormat, kubernetes: str, *, headers: bool) -> None:
    if output is VerifyFormat.JUNIT:
        sys.stdout.write(junit(found))
    elif output.is_document:
        emit(_document(found, kubernetes), output)
    elif output is VerifyFormat.NAME:
        failed = (each for each in found.outcomes if each.proof.verdict is ProofVerdict.FAIL)
        names_only("row", (each.proof.row for each in failed))
    else:
        sys.stdout.write(table(found, headers=headers))
        sys.stdout.write(failures(found, width=terminal.width()) + count(found))


def _document(found: VerifyRun, kubernetes: str) -> VerifyReport:
    from gpuinspect.commands.main import own_version  # noqa: PLC0415 - it imports this module

    date = datetime.now(tz=UTC).date().isoformat()
    return verify_report(found, version=own_version(), kubernetes=kubernetes, date=date)


def table(run: VerifyRun, *, headers: bool = True) -> str:
    """One line a row: node, GPU, model, mode, row, verdict, what was seen."""
    heads = ("NODE", "GPU", "MODEL", "MODE", "ROW", "RESULT", "SEEN")
    return aligned(heads, map(_line, run.outcomes), headers=headers)


def _line(outcome: RowOutcome) -> tuple[str, ...]:
    target, proof = outcome.target, outcome.proof
    cells = (target.node, str(target.index), target.model, target.mode, proof.row)
    return (*cells, proof.verdict.value, proof.seen)


def failures(run: VerifyRun, *, width: int | None) -> str:
    """What was expected, seen, and is to be done, for each row that does not hold."""
    return "".join(line for each in run.outcomes for line in _details(each, width))


def _details(outcome: RowOutcome, width: int | None) -> Iterator[str]:
    target, proof = outcome.target, outcome.proof
    if proof.verdict in {ProofVerdict.PASS, ProofVerdict.SKIP}:
        return
    word = "FAIL" if proof.verdict is ProofVerdict.FAIL else "known"
    yield f"{word}  {proof.row} on {target.node} GPU {target.index}: {ROWS[proof.row]}\n"
    yield wrapped(f"      expected: {proof.expected}", width, indent=8)
    yield wrapped(f"      seen: {proof.seen}", width, indent=8)
    yield wrapped(f"      do: {proof.next_step}", width, indent=8)


def count(run: VerifyRun) -> str:
    """The last line."""
    counts = Counter(each.proof.verdict for each in run.outcomes)
    parts = [f"{counts[verdict]} {verdict.value}" for verdict in ProofVerdict if counts[verdict]]
    return f"{len(run.outcomes)} rows: {', '.join(parts)}\n"
