"""Running other programs: always with a deadline, always with the reason when one fails.

Output is captured as text and held in memory, so this is not for programs that stream gigabytes.
"""

import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from host.errors import SetupError

_TAIL_LINES = 15


def run_command(
    argv: Sequence[str | Path],
    *,
    timeout_s: float,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    stdin: str | None = None,
) -> str:
    """Run a program to its end and return its standard output.

    `env` is added to the environment of this process. Raises SetupError when the program is
    missing, exits other than 0 (with the tail of what it wrote) or overruns `timeout_s` seconds.
    """
    command = [str(word) for word in argv]
    try:
        done = subprocess.run(
            command,
            check=False,
            cwd=cwd,
            env={**os.environ, **(env or {})},
            input=stdin,
            stdin=subprocess.DEVNULL if stdin is None else None,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout_s,
        )
    except (FileNotFoundError, PermissionError) as error:
        # A folder of PATH that this user may not read is reported as a denied permission.
        raise SetupError(f"`{error.filename}` is not installed or not on PATH") from error
    except subprocess.TimeoutExpired as error:
        raise SetupError(f"`{_shown(command)}` did not end within {timeout_s:g} s") from error
    if done.returncode != 0:
        raise SetupError(_failure(command, done))
    return done.stdout


def succeeds(argv: Sequence[str | Path], *, timeout_s: float) -> bool:
    """True when the program exists, ends within `timeout_s` seconds and exits 0."""
    try:
        run_command(argv, timeout_s=timeout_s)
    except SetupError:
        return False
    return True


def _failure(command: Sequence[str], done: subprocess.CompletedProcess[str]) -> str:
    tail = (done.stdout + done.stderr).strip().splitlines()[-_TAIL_LINES:]
    return "\n  ".join([f"`{_shown(command)}` exited {done.returncode}:", *tail])


def _shown(command: Sequence[str]) -> str:
    text = " ".join(command)
    return text if len(text) <= 160 else f"{text[:157]}..."
