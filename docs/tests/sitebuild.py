"""Builds the documentation, or a smaller site with the same settings."""

import os
import subprocess
import sys
from pathlib import Path


def build(config: Path, into: Path) -> subprocess.CompletedProcess[str]:
    """Build a site as `make docs` does: with `--quiet` strict mode would count no warning."""
    command = [sys.executable, "-m", "mkdocs", "build", "--strict"]
    return subprocess.run(
        [*command, "--config-file", str(config), "--site-dir", str(into)],
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},  # see mkdocs.yml
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
