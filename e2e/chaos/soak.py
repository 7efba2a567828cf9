"""Run the stack under load for an hour and check that memory stays flat.

make soak                          an hour
make soak ARGS='--minutes 15'      shorter; --record writes docs/benchmarks/scale.json and the page

Extender, scheduler, kubelets and plugins of three nodes run as in `make chaos`, but nothing is
killed. Resident memory of the extender and of the plugins is read every ten seconds. After the
first quarter a line is fitted; the run fails where it rises by more than 3 % and 2 MiB over the
rest of the run.
"""

import argparse
import asyncio
import json
import random
import statistics
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from bench.__main__ import about_machine, code
from chaos import settling
from chaos.invariants import capacity_faults
from chaos.load import PodLoad
from chaos.objects import node_object
from chaos.rig import NODES, StackRig
from environments.apicall import ApiCalls
from host.progress import say, step
from host.stopping import end_on_signals
from scale.__main__ import record
from scale.cluster import resident_mib

SAMPLE_SECONDS: Final = 10.0
STEP_SECONDS: Final = 0.1
WARM_UP_PART: Final = 0.25
RISE_PART: Final = 0.03
RISE_MIB: Final = 2.0
CHECKED: Final = ("extender", "plugin")

Samples = list[tuple[float, float]]


class MemoryTrend(msgspec.Struct, frozen=True):
    """A line through the samples of one process after the warm-up.

    Attributes:
        mib: mean.
        rise_mib: of the line, from its first sample to its last.
        mib_per_hour: its slope.
    """

    mib: float
    rise_mib: float
    mib_per_hour: float

    @property
    def flat(self) -> bool:
        """Whether it rises by no more than is allowed."""
        return self.rise_mib <= self.mib * RISE_PART + RISE_MIB


def trend(samples: Sequence[tuple[float, float]]) -> MemoryTrend:
    """The line through samples of seconds and MiB, without the first quarter of the time."""
    first = samples[0][0] + (samples[-1][0] - samples[0][0]) * WARM_UP_PART
    kept = [one for one in samples if one[0] >= first]
    slope, _ = statistics.linear_regression(*zip(*kept, strict=True))
    rise = slope * (kept[-1][0] - kept[0][0])
    mean = statistics.fmean(mib for _, mib in kept)
    return MemoryTrend(round(mean, 1), round(rise, 2), round(slope * 3600, 2))


def main() -> None:
    """Run, print, and end with 1 where memory rises or something did not hold."""
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(prog="make soak", description=__doc__, formatter_class=form)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--record", action="store_true", help="write the figures and the page")
    options = parser.parse_args()
    found = asyncio.run(soaked(options.minutes * 60))
    found |= {"machine": about_machine(), "code": code()}
    print(json.dumps(found, indent=2))
    if options.record:
        record("soak", found)
    sys.exit(1 if found["faults"] else 0)


async def soaked(seconds: float) -> dict[str, Any]:
    """Figures of a run of so many seconds."""
    end_on_signals()
    rig = StackRig()
    try:
        with step("start the control plane and the stack"):
            await asyncio.to_thread(rig.start_control_plane)
            async with ApiCalls.to(rig.plane) as calls:
                await calls.create("/api/v1/nodes", map(node_object, NODES))
                await asyncio.to_thread(rig.start_stack)
                return await _soaked(rig, calls, seconds)
    finally:
        await asyncio.to_thread(rig.stop)


async def _soaked(rig: StackRig, calls: ApiCalls, seconds: float) -> dict[str, Any]:
    load = PodLoad(calls, random.Random(0), units=rig.units)
    loading = asyncio.create_task(_pods(load))
    samples: dict[str, Samples] = {name: [] for name in rig.pids()}
    faults: list[str] = []
    end = time.monotonic() + seconds
    try:
        while time.monotonic() < end and not faults:
            await asyncio.sleep(SAMPLE_SECONDS)
            faults += _sample(rig, samples)
            say(f"{load.created} pods, extender {samples['extender'][-1][1]:.0f} MiB")
        faults += load.lost + await settling.settled(rig, load)
    finally:
        loading.cancel()
        await asyncio.gather(loading, return_exceptions=True)
    trends = {name: trend(series) for name, series in samples.items()}
    return {
        "minutes": round(seconds / 60, 1),
        "pods": load.created,
        "refused": sum(load.refused.values()),
        "resident_mib": {name: msgspec.to_builtins(one) for name, one in trends.items()},
        "faults": faults + _rising(trends),
    }


def _rising(trends: Mapping[str, MemoryTrend]) -> list[str]:
    """Sentences about processes of ours whose memory is not flat."""
    return [
        f"{name} rises by {one.rise_mib:g} MiB from {one.mib:g} ({one.mib_per_hour:g} MiB an hour)"
        for name, one in trends.items()
        if name.startswith(CHECKED) and not one.flat
    ]


def _sample(rig: StackRig, samples: dict[str, Samples]) -> list[str]:
    now = time.monotonic()
    faults = [f"{part} ended by itself: {rig.log(part)}" for part in rig.ended()]
    if not faults:
        for name, pid in rig.pids().items():
            samples[name].append((now, resident_mib(pid)))
    return faults + capacity_faults(rig.grants(), rig.machines)


async def _pods(load: PodLoad) -> None:
    while True:
        await load.step()
        await asyncio.sleep(STEP_SECONDS)


if __name__ == "__main__":
    main()
