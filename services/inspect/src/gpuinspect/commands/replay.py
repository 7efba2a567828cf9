"""``gpushare replay``: what a policy would leave unallocated of a cluster, by a trace of pods.

Chance and the clock are here; deciding is the core's.
"""

import random
import sys
import time
from collections.abc import Iterator, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from gpucore.simulate.replay import Replayed
from gpucore.simulate.replay import replay as replayed
from gpucore.simulate.traces import TraceNode, TracePod
from gpuinspect.commands.options.formats import Format, Output, emit, names_only
from gpuinspect.commands.options.reading import fail
from gpuinspect.errors import InspectError
from gpuinspect.sources.trace_files import read_nodes, read_pods
from gpuinspect.terminal.progress import shown


class PlacementPolicyName(StrEnum):
    """Values of ``--policy``."""

    BINPACK = "binpack"
    SPREAD = "spread"
    FRAGMENTATION = "fragmentation"
    RANDOM = "random"
    PUBLISHED = "published"
    CLAIMS_PLAIN = "claims-plain"
    CLAIMS_BINPACK = "claims-binpack"
    CLAIMS_FRAGMENTATION = "claims-fragmentation"
    CLAIMS_PLAIN_PACKED = "claims-plain-packed"
    CLAIMS_BINPACK_PACKED = "claims-binpack-packed"
    CLAIMS_FRAGMENTATION_PACKED = "claims-fragmentation-packed"
    CLAIMS_BINPACK_NOMINATED = "claims-binpack-nominated"
    CLAIMS_FRAGMENTATION_NOMINATED = "claims-fragmentation-nominated"


class Report(msgspec.Struct, frozen=True):
    """What is printed: figures in exclusive GPUs, but for the counts of pods and the seconds."""

    policy: str
    arrivals: float
    seed: int
    gpus: int
    requested: float
    placed: float
    failed: float
    unallocated_gpus: float
    requested_pods: int
    failed_pods: int
    seconds: float


def replay(
    *,
    nodes: Annotated[Path, typer.Option(help="CSV of nodes", metavar="CSV")],
    pods: Annotated[Path, typer.Option(help="CSV of pods", metavar="CSV")],
    policy: Annotated[PlacementPolicyName, typer.Option(help="how GPUs and nodes are chosen")],
    arrivals: Annotated[
        float, typer.Option(help="stop when requests reach this multiple of all GPUs", min=0.0)
    ] = 1.3,
    seed: Annotated[int, typer.Option(help="random seed for drawing pods from the trace")] = 0,
    output: Output = Format.TABLE,
) -> None:
    """Draw pods from a trace until they request more GPUs than exist; count unallocated GPUs.

    Figures are in exclusive GPUs: a pod that requests 460 of 1000 counts 0.46.
    """
    try:
        report = _report(read_nodes(nodes), read_pods(pods), policy, arrivals, seed)
    except InspectError as error:
        fail(error)
    if output.is_document:
        emit(report, output)
    elif output is Format.NAME:
        names_only("policy", [report.policy])
    else:
        sys.stdout.write(_table(report))


def _report(
    nodes: Sequence[TraceNode], pods: Sequence[TracePod], policy: str, arrivals: float, seed: int
) -> Report:
    chance = random.Random(seed)  # noqa: S311 - a repeatable draw, no secret
    started = time.monotonic()
    with shown("GPUs requested", arrivals * sum(node.gpus for node in nodes)) as progress:
        result = replayed(
            nodes,
            _drawn(pods, chance),
            policy,
            workload=pods,
            pick=chance.randrange,
            target=arrivals,
            progress=progress.reach,
        )
    return _reported(result, policy, arrivals, seed, round(time.monotonic() - started, 3))


def _reported(result: Replayed, policy: str, arrivals: float, seed: int, seconds: float) -> Report:
    figures = msgspec.structs.asdict(result)
    return Report(policy=str(policy), arrivals=arrivals, seed=seed, seconds=seconds, **figures)


def _drawn(pods: Sequence[TracePod], chance: random.Random) -> Iterator[TracePod]:
    while True:
        yield chance.choice(pods)


def _table(report: Report) -> str:
    rows = [(name.upper(), _text(value)) for name, value in msgspec.structs.asdict(report).items()]
    width = max(len(name) for name, _ in rows)
    return "".join(f"{name:<{width}}  {value}\n" for name, value in rows)


def _text(value: object) -> str:
    return f"{value:.2f}" if isinstance(value, float) else str(value)
