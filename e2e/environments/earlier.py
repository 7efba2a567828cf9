"""The chart and the images of an earlier commit of this repository, from which one upgrades."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Final, NamedTuple

from host.errors import SetupError
from host.progress import step
from images.build import Built

ROOT: Final = Path(__file__).parents[2]
SECONDS: Final = 1800

# The commit's own builder makes its images; only its answer is read here.
_BUILD: Final = """
import dataclasses, json, sys
from images import build
with open(sys.argv[1], "w") as file:
    json.dump(dataclasses.asdict(build.ensure()), file)
"""


class Earlier(NamedTuple):
    """What an earlier commit installs."""

    chart: Path
    images: Built


def newest_release() -> str:
    """The tag of the release before this commit; empty where there is none."""
    command = ["git", "describe", "--tags", "--abbrev=0", "HEAD^"]
    found = subprocess.run(
        command, cwd=ROOT, check=False, capture_output=True, text=True, timeout=60
    )
    return found.stdout.strip()


def build(commit: str, folder: Path) -> Earlier:
    """Lay the commit out in an empty folder and build its images.

    Raises:
        SetupError: there is no such commit, or its images cannot be built.
    """
    tree, answer = folder / "tree", folder / "images.json"
    tree.mkdir()
    with step(f"build the images of {commit}"):
        archive = _run(["git", "archive", "--format=tar", commit], ROOT)
        _run(["tar", "--extract"], tree, given=archive)
        paths = {**os.environ, "PYTHONPATH": str(tree / "e2e")}
        _run([sys.executable, "-c", _BUILD, str(answer)], tree, environment=paths)
    return Earlier(tree / "helm" / "gpushare", Built(**json.loads(answer.read_text())))


def _run(
    command: list[str],
    where: Path,
    *,
    given: bytes = b"",
    environment: dict[str, str] | None = None,
) -> bytes:
    done = subprocess.run(
        command,
        cwd=where,
        env=environment,
        check=False,
        capture_output=True,
        input=given,
        timeout=SECONDS,
    )
    if done.returncode:
        why = done.stderr.decode(errors="replace").strip()
        raise SetupError(f"{' '.join(command[:2])} failed: {why[-500:]}")
    return done.stdout
