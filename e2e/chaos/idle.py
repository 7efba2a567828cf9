"""Measure what the device plugin costs on a node of eight GPUs on which nothing happens.

make idle                          a minute
make idle ARGS='--seconds 300'     longer

Control plane and plugin are the real programs, the driver is a mock and the kubelet that of
:mod:`chaos.kubelet`. The plugin has the packages, compiled modules and variables of its image. The
run fails where it takes more memory or more of a core than its bounds. The driver's library sleeps
until an event comes, so the mock polls its files as rarely as the plugin waits; with
``--mock-polls`` it polls them as often as in other tests.
"""

import argparse
import asyncio
import json
import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from bench.__main__ import about_machine, code
from bench.meter import load, spent
from chaos.objects import node_object
from chaos.rig import START_SECONDS, StackRig
from environments.apicall import ApiCalls
from environments.imagepython import DEVICE_PLUGIN, ImagePython
from host.progress import say, step
from host.waiting import until

NODE: Final = "quiet"
MACHINE: Final = "h100-nvswitch-8x80"
SETTLE_SECONDS: Final = 20
MOST_MIB: Final = 50.0
MOST_PERCENT: Final = 0.3
RARE_POLLS: Final = {"GPUSHARE_MOCK_NVML_EVENT_POLL_MS": "60000"}


def main() -> None:
    """Start, wait, measure; exit status 1 where a bound is not met."""
    parser = argparse.ArgumentParser(
        prog="make idle",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--mock-polls", action="store_true", help="poll for events as in tests")
    arguments = parser.parse_args()
    found = asyncio.run(_measure(arguments.seconds, mock_polls=arguments.mock_polls))
    print(json.dumps(found, indent=2))
    if found["mib"] > MOST_MIB or found["percent_of_a_core"] > MOST_PERCENT:
        say(f"the bounds are {MOST_MIB} MiB and {MOST_PERCENT} % of a core")
        sys.exit(1)


async def _measure(seconds: int, *, mock_polls: bool) -> dict[str, Any]:
    rig = StackRig()
    try:
        with step("start the control plane"):
            await asyncio.to_thread(rig.start_control_plane)
        async with ApiCalls.to(rig.plane) as calls:
            await calls.create("/api/v1/nodes", [node_object(NODE)])
        with step("start the node"):
            pid = await asyncio.to_thread(_start_node, rig, {} if mock_polls else RARE_POLLS)
            await asyncio.sleep(SETTLE_SECONDS)
        with step(f"measure for {seconds} s"):
            before, wakes = spent(pid), _wakes(pid)
            await asyncio.sleep(seconds)
            used, woken = spent(pid) - before, _wakes(pid)
        woken.subtract(wakes)
        return {
            "machine": about_machine(),
            "code": code(),
            "load_average": load(),
            "mock_polls": mock_polls,
            "mib": round(_mib(pid, "Pss"), 1),
            "resident_mib": round(_mib(pid, "Rss"), 1),
            "percent_of_a_core": round(100 * used / seconds, 2),
            "wakes_per_second": {
                name: round(count / seconds, 2) for name, count in woken.most_common() if count
            },
        }
    finally:
        await asyncio.to_thread(rig.stop)


def _start_node(rig: StackRig, polls: Mapping[str, str]) -> int:
    """The process id of the plugin, once its kubelet has its devices."""
    root = rig.plane.folder / NODE
    root.mkdir()
    python = ImagePython(DEVICE_PLUGIN, root / "python")
    environ = {**python.environ, **polls}
    plugin = rig.plugin(NODE, MACHINE, root, python.command, usage_seconds=4, **environ)
    rig.kubelet(NODE, root)
    until(
        "the node offers its GPUs",
        lambda: "aliyun.com/gpu-mem" in rig.plane.kubectl("get", "node", NODE, "--output=json"),
        seconds=START_SECONDS,
    )
    return plugin.pid


def _wakes(pid: int) -> Counter[str]:
    """How often each thread waited and was woken, by its name."""
    found = Counter[str]()
    for task in Path(f"/proc/{pid}/task").iterdir():
        name = f"{(task / 'comm').read_text().strip()} {task.name if task.name != str(pid) else ''}"
        for line in (task / "status").read_text().splitlines():
            if line.startswith("voluntary_ctxt_switches"):
                found[name.strip()] += int(line.split()[1])
    return found


def _mib(pid: int, kind: str) -> float:
    """Memory of the process; of ``Pss``, what it shares with others counts in part."""
    text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    line = next(line for line in text.splitlines() if line.startswith(f"{kind}:"))
    return int(line.split()[1]) / 1024


if __name__ == "__main__":
    main()
