"""The `gpushare` command as one wheel, with the hashes of everything that it needs besides.

The wheel holds the packages of three members: on PyPI the name `gpucore` belongs to somebody else,
so the members cannot be published one by one.
"""

import json
import shutil
import tempfile
import tomllib
from pathlib import Path
from typing import Any, Final

from images import wheels
from release import charts

NAME: Final = "gpushare-cli"
"""Name of the distribution; free on PyPI on 2026-11-22, where `gpushare` is taken."""
MEMBERS: Final = ("libs/gpucore", "libs/gpukube", "libs/gpuprobe", "services/inspect")
_OWN: Final = {"gpucore", "gpukube", "gpuprobe"}
_LEFT_OUT: Final = shutil.ignore_patterns("__pycache__", "testing")


def write(root: Path, version: str, into: Path) -> Path:
    """Build the wheel of this version, and copy the requirement file that goes with it; its path.

    The time of the files is SOURCE_DATE_EPOCH of the environment, which hatchling reads.
    """
    shutil.copyfile(root / "requirements" / "inspect.txt", into / "requirements.txt")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for member in MEMBERS:
            # Links lead out of the member, such as to the serving chart: the copy holds the files.
            shutil.copytree(
                root / member / "src", folder / "src", ignore=_LEFT_OUT, dirs_exist_ok=True
            )
        for chart in folder.rglob("Chart.yaml"):
            chart.write_text(charts.with_version(chart.read_text(), version))
        (folder / "pyproject.toml").write_text(_project(root, version, folder / "src"))
        return wheels.build(folder, into=into)


def _project(root: Path, version: str, sources: Path) -> str:
    """The project file of the wheel; strings and lists of TOML are spelled as those of JSON."""
    projects = [_read(root / member) for member in MEMBERS]
    command = projects[-1]
    needed = {line for project in projects for line in project.get("dependencies", ())}
    packages = sorted(f"src/{path.name}" for path in sources.iterdir())
    return "\n".join(
        (
            "[project]",
            f'name = "{NAME}"',
            f'version = "{version}"',
            f"description = {json.dumps(command.get('description', ''))}",
            f'requires-python = "{command["requires-python"]}"',
            'license = "Apache-2.0"',
            f"dependencies = {json.dumps(sorted(needed - _OWN))}",
            *_table("project.optional-dependencies", command.get("optional-dependencies", {})),
            *_table("project.scripts", command.get("scripts", {})),
            "[build-system]",
            "requires = []",
            'build-backend = "hatchling.build"',
            "[tool.hatch.build.targets.wheel]",
            f"packages = {json.dumps(packages)}",
            "",
        )
    )


def _table(name: str, values: dict[str, Any]) -> list[str]:
    return [f"[{name}]", *(f"{key} = {json.dumps(value)}" for key, value in values.items())]


def _read(member: Path) -> dict[str, Any]:
    found: dict[str, Any] = tomllib.loads((member / "pyproject.toml").read_text())["project"]
    return found
