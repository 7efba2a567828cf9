"""What the command line costs whoever waits for it: whole runs of ``gpushare``, start included."""

import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from bench import digest

LINES: Final[Mapping[str, Sequence[str]]] = {
    "gpushare inspect": ("inspect",),
    "gpushare --help": ("--help",),
}


class CommandCost(msgspec.Struct, frozen=True):
    """Seconds that one run took, and seconds of CPU that it spent itself."""

    wall: float
    cpu: float


def measure(kubeconfig: Path, runs: int) -> dict[str, Any]:
    """Each line as often as there are runs, in turns, after one run that fills the caches."""
    found: dict[str, list[CommandCost]] = {name: [] for name in LINES}
    for _ in range(runs + 1):
        for name, line in LINES.items():
            found[name].append(_run(line, kubeconfig))
    return {
        name: {
            "seconds": digest.spread([each.wall for each in costs[1:]]),
            "cpu_seconds": digest.spread([each.cpu for each in costs[1:]]),
        }
        for name, costs in found.items()
    }


def _run(line: Sequence[str], kubeconfig: Path) -> CommandCost:
    command = (sys.executable, "-m", "gpuinspect", *line)
    environment = {**os.environ, "KUBECONFIG": str(kubeconfig)}
    begin = time.perf_counter()
    process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - begin
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command)
    return CommandCost(seconds, usage.ru_utime + usage.ru_stime)
