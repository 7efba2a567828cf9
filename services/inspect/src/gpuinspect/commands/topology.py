"""``gpushare topology``: which GPUs are well connected, for a file or a node.

``plan`` answers offline, from a matrix in a file; nothing of a cluster is needed. ``show`` draws
the matrix of one node as the original's ``kubectl inspect gpu`` did.
"""

import sys
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from gpucore.accounting.node_infos import node_matrix
from gpucore.model.links import Matrix, TopologyError
from gpucore.topology.drawing import LEGEND, RULE, draw
from gpucore.topology.policies import GpuGroup, Impossible, plan
from gpucore.topology.static import StaticSets, decode_static
from gpucore.wire.names import NODE_TYPE
from gpucore.wire.node.matrices import decode_matrix
from gpuinspect.cluster.collect import CLAIM_LISTS
from gpuinspect.cluster.ledger import ledger_of
from gpuinspect.cluster.scoped import NO_CLAIMS, gaps
from gpuinspect.cluster.snapshots import content
from gpuinspect.commands.options import answers
from gpuinspect.commands.options.formats import Format, Output, emit
from gpuinspect.commands.options.kinds import node_name
from gpuinspect.commands.options.reading import Reader, fail, note_all, reading
from gpuinspect.errors import MissingObjectError

app = typer.Typer(no_args_is_help=True, add_completion=False, rich_markup_mode=None)


class TopologyPolicyName(StrEnum):
    """Values of ``--policy``."""

    BEST_EFFORT = "best-effort"
    SIMPLE = "simple"
    STATIC = "static"
    BANDWIDTH = "bandwidth"


@app.callback()
def topology() -> None:
    """Show which GPUs are joined how, and which of them belong together."""


def _with_dashes(text: str) -> str:
    """The spelling of 2019 as ours: ``best_effort``."""
    return text.replace("_", "-")


@app.command("plan", context_settings={"token_normalize_func": _with_dashes})
def plan_gpus(
    *,
    matrix: Annotated[
        Path,
        typer.Option(
            help='JSON: {"gpus": 8, "links": {"0-1": ["NV2", "PIX"]}} or a GPU_TOPOLOGY annotation;'
            " - is standard input",
            metavar="FILE",
        ),
    ],
    count: Annotated[int, typer.Option(help="number of GPUs to choose", metavar="N")],
    free: Annotated[
        str | None,
        typer.Option(help="GPUs that are free, such as 0,2,4; default: all", metavar="LIST"),
    ] = None,
    require: Annotated[
        str, typer.Option(help="GPUs that the choice must include", metavar="LIST")
    ] = "",
    policy: Annotated[
        TopologyPolicyName, typer.Option(help="how to choose")
    ] = TopologyPolicyName.BEST_EFFORT,
    node_type: Annotated[
        str | None,
        typer.Option(help="node type whose sets the policy static uses", metavar="TYPE"),
    ] = None,
    static_config: Annotated[
        Path | None,
        typer.Option(help="JSON: sets of GPUs by node type and size", metavar="FILE"),
    ] = None,
    output: Output = Format.TABLE,
) -> None:
    """Choose GPUs of a machine described in a file; exit code 1 if no set qualifies."""
    machine = _machine(matrix)
    answer = plan(
        machine,
        machine.gpus if free is None else _indexes("--free", free),
        count,
        _indexes("--require", require),
        policy=policy,
        node_type=node_type,
        static=_sets(static_config),
    )
    if isinstance(answer, Impossible):
        fail(answer.sentence)
    if output.is_document:
        emit(answer, output)
    elif output is Format.NAME:
        print(",".join(map(str, answer.gpus)))
    else:
        _print(machine, answer, policy)


def _print(machine: Matrix, answer: GpuGroup, policy: str) -> None:
    gpus = ", ".join(map(str, answer.gpus))
    rest = answer.partition_score - answer.score
    sys.stdout.write(draw(machine.part(tuple(sorted(answer.gpus)))))
    print(
        f"\n{policy} takes {'GPU' if len(answer.gpus) == 1 else 'GPUs'} {gpus}: score "
        f"{answer.score}; the other free GPUs score {rest}, {answer.partition_score} in total."
    )


def _machine(path: Path) -> Matrix:
    try:
        machine = decode_matrix(_text(path))
    except TopologyError as error:
        fail(f"{path}: {error}")
    note_all(machine.notes)
    return machine


def _sets(path: Path | None) -> dict[str, StaticSets] | None:
    try:
        return None if path is None else decode_static(_text(path))
    except TopologyError as error:
        fail(f"{path}: {error}")


def _text(path: Path) -> bytes:
    try:
        return content(path)
    except OSError as error:
        fail(f"cannot read {path}: {error.strerror}")


def _indexes(flag: str, text: str) -> list[int]:
    """``0,2,4`` as numbers; anything else is a mistake in the command line."""
    words = [word.strip() for word in text.split(",")] if text.strip() else []
    if not all(word.isascii() and word.isdigit() and len(word) < 4 for word in words):
        raise typer.BadParameter(
            f"{text!r} is not a list of GPU indexes such as 0,2,4", param_hint=flag
        )
    return [int(word) for word in words]


@app.command("show")
@reading
def show(
    reader: Reader,
    node: Annotated[
        str,
        typer.Argument(
            help="the node", metavar="NODE", autocompletion=answers.nodes, callback=node_name
        ),
    ],
) -> None:
    """Draw how the GPUs of a node are connected; GPUs in use show X."""
    snapshot = reader.source.read(*CLAIM_LISTS)
    found = next((each for each in snapshot.nodes if each.name == node), None)
    if found is None:
        raise MissingObjectError(f'nodes "{node}" not found')
    machine = node_matrix(found, reader.names)
    if machine is None:
        fail(f"node {node} publishes no GPUs")
    note_all((*machine.notes, *gaps(snapshot, NO_CLAIMS)))
    node_info = ledger_of(snapshot, reader.names).node(found.name)
    devices = node_info.devices.items() if node_info else ()
    used = [i for i, device in devices if device.gpu is not None and device.holders]
    pending = node_info.pending_gpus if node_info else 0
    _draw_node(node, machine, used, pending, found.annotations.get(NODE_TYPE, ""))


def _draw_node(
    name: str, machine: Matrix, used: Sequence[int], pending: int, node_type: str
) -> None:
    print(f"node name: {name}")
    print(f"all gpu: {len(machine.gpus)}")
    print(f"used gpu: {len(used) + pending}")
    if node_type:
        print(f"node type: {node_type}")
    print("gpu topology:")
    sys.stdout.write(draw(machine, used))
    print(f"{RULE}\n{LEGEND}", end="")
