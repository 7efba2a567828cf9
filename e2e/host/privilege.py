"""Root for the few steps that need it: as root itself or through passwordless sudo.

Never requests a password: a test run cannot type one.
"""

import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from host.commands import run_command, succeeds


def can_be_root() -> bool:
    """True when this process is root or sudo works without a password."""
    return os.geteuid() == 0 or succeeds(["sudo", "-n", "true"], timeout_s=10)


def installed(program: str) -> bool:
    """True when root would find the program, also in folders an ordinary PATH leaves out."""
    path = os.pathsep.join([os.environ.get("PATH", ""), "/usr/local/sbin", "/usr/sbin", "/sbin"])
    return shutil.which(program, path=path) is not None


def as_root(argv: Sequence[str | Path], *, timeout_s: float, stdin: str | None = None) -> str:
    """Run a program as root like `run_command`, without questions from the package tools."""
    quiet = ["env", "DEBIAN_FRONTEND=noninteractive"]
    sudo = [] if os.geteuid() == 0 else ["sudo", "-n"]
    return run_command([*sudo, *quiet, *argv], timeout_s=timeout_s, stdin=stdin)
