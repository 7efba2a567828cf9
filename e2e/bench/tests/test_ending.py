"""A measurement that is ended takes its control plane down."""

import subprocess
import sys
from pathlib import Path

import pytest

E2E = Path(__file__).parents[2]
ENDED = """
import asyncio, os, signal, sys, threading
from bench import __main__ as bench, claimrate

class Plane:
    def __init__(self):
        self.stopped = threading.Event()
    def start(self):
        os.kill(os.getpid(), int(sys.argv[2]))
        self.stopped.wait(60)
    def stop(self):
        print("stopped", flush=True)
        self.stopped.set()

for module in (bench, claimrate):
    module.ControlPlane = Plane
options = bench._parser().parse_args(["--only", "start"])
runs = {"bench": lambda: bench._some(options), "claimrate": lambda: claimrate.measured(1, 1, 1)}
asyncio.run(runs[sys.argv[1]]())
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("module", "name"),
    [("bench", "SIGINT"), ("bench", "SIGTERM"), ("bench", "SIGHUP"), ("claimrate", "SIGHUP")],
)
def test_a_measurement_that_is_ended_stops_its_control_plane(module: str, name: str) -> None:
    """Ctrl-C, `kill` and a closed terminal leave no etcd and no API server."""
    script = f"import signal, sys; sys.argv[2] = signal.{name}\n{ENDED}"
    done = subprocess.run(
        [sys.executable, "-c", script, module, ""],
        cwd=E2E, capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    assert done.stdout == "stopped\n", done.stderr
    assert done.returncode != 0
