"""The accessibility checker axe-core, from its npm package.

The package is installed with ``npm`` into the cache folder of the user, once for each version. Its
files are never part of the repository.
"""

import os
import shutil
import subprocess
from pathlib import Path
from typing import Final

VERSION: Final = "4.10.3"
TIMEOUT_S: Final = 300
SERIOUS: Final = frozenset({"serious", "critical"})
"""Impacts that fail a test."""
RUN: Final = """async () => {
  const found = await axe.run(document, {resultTypes: ["violations"]});
  return found.violations.map((v) => ({
    id: v.id, impact: v.impact, help: v.help,
    targets: v.nodes.map((n) => n.target.join(" ")).slice(0, 5),
  }));
}"""


def script() -> str | None:
    """The text of axe-core; ``None`` without npm, or where the package cannot be had."""
    file = _folder() / "node_modules" / "axe-core" / "axe.min.js"
    if not file.exists() and not _install():
        return None
    return file.read_text()


def _folder() -> Path:
    cache = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(cache) / "gpushare" / f"axe-core-{VERSION}"


def _install() -> bool:
    npm = shutil.which("npm")
    if npm is None:
        return False
    line = [npm, "install", "--no-save", "--no-audit", "--no-fund", "--ignore-scripts"]
    line += ["--prefix", str(_folder()), f"axe-core@{VERSION}"]
    _folder().mkdir(parents=True, exist_ok=True)
    try:
        done = subprocess.run(line, check=False, capture_output=True, timeout=TIMEOUT_S)
    except subprocess.TimeoutExpired:
        return False
    return done.returncode == 0
