"""A Chromium for the tests of the page: the machine's own, or Debian's package put there.

`python services/inspect/tests/web/chromium.py` installs it by hand. Only root on a machine with
apt-get can; nothing else is downloaded, and no browser of the test library's is used.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

PROGRAMS: Final = (
    "chromium-headless-shell",
    "chromium",
    "chromium-browser",
    "google-chrome",
)
PACKAGE: Final = "chromium-headless-shell"
TIMEOUT_S: Final = 300


def found() -> Path | None:
    """The first of the known browsers that is on PATH."""
    path = next(filter(None, map(shutil.which, PROGRAMS)), None)
    return None if path is None else Path(path)


def installed() -> Path | None:
    """The browser, after installing Debian's where there is none; ``None`` where that fails."""
    return found() or _install()


def _install() -> Path | None:
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        return None
    quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for step in (["update"], ["install", "--yes", "--no-install-recommends", PACKAGE]):
        line = ["apt-get", "--quiet", *step]
        try:
            done = subprocess.run(
                line, check=False, env=quiet, stdout=sys.stderr, timeout=TIMEOUT_S
            )
        except subprocess.TimeoutExpired:
            return None
        if done.returncode != 0:
            return None
    return found()


if __name__ == "__main__":
    browser = installed()
    print(browser or f"cannot install {PACKAGE}: be root on Debian, or put a Chromium on PATH")
    sys.exit(browser is None)
