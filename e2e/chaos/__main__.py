"""Kill the parts of a running stack at random and check that nothing is lost.

make chaos                                    1,000 kills on processes of this machine
make chaos ARGS='--rounds 50 --seed 7'        fewer, with the choices of another seed
make chaos ARGS='--minutes 20'                as many of them as fit into twenty minutes
make chaos ARGS='--kind --rounds 50'          on a kind cluster of its own, with real kubelets
"""

import argparse
import asyncio
import random
import sys
import time
from pathlib import Path
from typing import Any

import msgspec

from bench.__main__ import about_machine, code
from bench.meter import load
from chaos import report
from chaos.kindrig import KindRig
from chaos.objects import node_object
from chaos.rig import NODES, StackRig
from chaos.rounds import RECOVERY_SECONDS, ChaosRounds, ChaosRun
from environments.apicall import ApiCalls
from environments.owncluster import own_cluster
from host.progress import say, step
from host.stopping import end_on_signals
from scale.__main__ import record

CALL_CONNECTIONS = 16
CLUSTER = "gpushare-chaos"


def main() -> None:
    """Run, print, and end with 1 where something did not hold."""
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(prog="make chaos", description=__doc__, formatter_class=form)
    parser.add_argument("--rounds", type=int, default=1000, help="number of kills")
    parser.add_argument("--minutes", type=float, default=180, help="stop after this many minutes")
    parser.add_argument("--seed", type=int, help="of every choice; printed where it is not given")
    parser.add_argument("--kind", action="store_true", help="kill on a kind cluster")
    parser.add_argument("--out", type=Path, help="write the results to this file, as JSON")
    parser.add_argument("--record", action="store_true", help="write the figures and the page")
    options = parser.parse_args()
    seed = options.seed if options.seed is not None else random.SystemRandom().randrange(10**6)
    say(f"seed {seed}")
    about = {"machine": about_machine(), "code": code()}
    if options.kind:
        run, cluster = chaos_on_kind(seed, options.rounds, minutes=options.minutes)
        about |= cluster
    else:
        run = asyncio.run(chaos(seed, options.rounds, minutes=options.minutes))
    if options.out:
        options.out.write_bytes(msgspec.json.format(msgspec.json.encode(run), indent=1))
    print(report.text(run))
    if options.record:
        part = "chaos-kind" if options.kind else "chaos"
        record(part, report.recorded(run) | about | {"load": load()})
    sys.exit(1 if run.violations else 0)


async def chaos(
    seed: int, rounds: int, *, minutes: float, recovery_s: float = RECOVERY_SECONDS
) -> ChaosRun:
    """Start a rig, run the rounds on it, take it down.

    Args:
        seed: of every choice.
        rounds: maximum number of kills.
        minutes: after which no more rounds begin.
        recovery_s: maximum recovery time of a round in seconds; longer is a fault.
    """
    until = time.monotonic() + minutes * 60
    rig = StackRig()
    end_on_signals()
    try:
        with step("start etcd and the API server"):
            await asyncio.to_thread(rig.start_control_plane)
        async with ApiCalls.to(rig.plane, connections=CALL_CONNECTIONS) as calls:
            await calls.create("/api/v1/nodes", map(node_object, NODES))
            with step("start extender, scheduler, kubelets and plugins"):
                await asyncio.to_thread(rig.start_stack)
            chaos_rounds = ChaosRounds(rig, calls, seed, recovery_s=recovery_s)
            return await chaos_rounds.go(rounds, until=until)
    finally:
        await asyncio.to_thread(rig.stop)


def chaos_on_kind(seed: int, rounds: int, *, minutes: float) -> tuple[ChaosRun, dict[str, Any]]:
    """Start a kind cluster, run the rounds on it, remove it; the run, and what it ran on."""

    async def run() -> ChaosRun:
        end_on_signals()
        async with ApiCalls.to(rig, connections=CALL_CONNECTIONS) as calls:
            until = time.monotonic() + minutes * 60
            return await ChaosRounds(rig, calls, seed).go(rounds, until=until)

    with own_cluster(CLUSTER) as environment:
        rig = KindRig(environment)
        major, minor = environment.version
        gpus = sum(map(len, environment.nodes.values()))
        return asyncio.run(run()), {"kubernetes": f"{major}.{minor}", "gpus": gpus}


if __name__ == "__main__":
    main()
