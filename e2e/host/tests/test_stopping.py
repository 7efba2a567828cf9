"""An interrupt reaches a run that a script started in the background."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
BACKGROUND = """
import signal, subprocess, sys
from host.stopping import heed_interrupts

signal.signal(signal.SIGINT, signal.SIG_IGN)
heed_interrupts()
child = subprocess.Popen([sys.executable, "-c", "print(flush=True); input()"],
                         stdin=subprocess.PIPE, stdout=subprocess.PIPE)
child.stdout.readline()
child.send_signal(signal.SIGINT)
try:
    child.wait(20)
    print("ended")
except subprocess.TimeoutExpired:
    child.kill()
    print("ignored it")
"""


def test_a_child_of_a_run_in_the_background_can_be_interrupted() -> None:
    done = subprocess.run(
        [sys.executable, "-c", BACKGROUND],
        cwd=ROOT, capture_output=True, text=True, check=True, timeout=120,
    )  # fmt: skip
    assert done.stdout.strip() == "ended"
