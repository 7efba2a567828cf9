"""``gpushare dashboard`` as a process of its own, on a port that the system has chosen."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

SECONDS = 60
"""For everything that is waited for; only a test that fails takes so long."""


@contextmanager
def served(*flags: str) -> Iterator[str]:
    """Run it with some flags until the block ends; gives host and port once it listens."""
    line = [sys.executable, "-m", "gpuinspect", "dashboard", "--port=0", *flags]
    ours = {key: text for key, text in os.environ.items() if not key.startswith("GPUSHARE_")}
    with TemporaryDirectory() as folder:
        log = Path(folder) / "log"
        with log.open("w") as stderr:
            service = subprocess.Popen(line, stderr=stderr, env=ours)
        try:
            yield _place(service, log)
        finally:
            service.terminate()
            service.wait(SECONDS)


def _place(service: subprocess.Popen[bytes], log: Path) -> str:
    """Where it listens, from its output; fails when it has ended or takes too long."""
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        for line in log.read_text().splitlines(keepends=True):
            if "://" in line and line.endswith("\n"):
                return line.partition("://")[2].partition("/")[0]
        assert service.poll() is None, log.read_text()
        try:
            service.wait(0.1)
        except subprocess.TimeoutExpired:
            continue
    raise AssertionError(f"it does not listen: {log.read_text()}")
