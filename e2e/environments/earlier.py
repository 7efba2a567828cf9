"""The chart and the images of an earlier commit of this repository, from which one upgrades."""

import json
import sys
from pathlib import Path
from typing import Final, NamedTuple

from host.commands import run_command
from host.errors import SetupError
from host.progress import step
from images.build import Built

ROOT: Final = Path(__file__).parents[2]
BUILD_SECONDS: Final = 1800

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
    try:
        command = ["git", "describe", "--tags", "--abbrev=0", "HEAD^"]
        return run_command(command, cwd=ROOT, timeout_s=60).strip()
    except SetupError:
        return ""


def build(commit: str, folder: Path) -> Earlier:
    """Lay the commit out in an empty folder and build its images.

    Raises:
        SetupError: there is no such commit, or its images cannot be built.
    """
    tree, answer, archive = folder / "tree", folder / "images.json", folder / "tree.tar"
    tree.mkdir()
    with step(f"build the images of {commit}"):
        run_command(["git", "archive", "--output", archive, commit], cwd=ROOT, timeout_s=60)
        run_command(["tar", "--extract", "--file", archive], cwd=tree, timeout_s=60)
        path = {"PYTHONPATH": str(tree / "e2e")}
        run_command(
            [sys.executable, "-c", _BUILD, answer], cwd=tree, env=path, timeout_s=BUILD_SECONDS
        )
    return Earlier(tree / "helm" / "gpushare", Built(**json.loads(answer.read_text())))
