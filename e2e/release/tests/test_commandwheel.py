"""The one wheel of the command."""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from release import commandwheel
from release.__main__ import ROOT


@pytest.mark.slow
def test_the_wheel_has_all_of_the_command(tmp_path: Path) -> None:
    """Three packages, the scripts, the serving chart, and no dependency that is not on PyPI."""
    path = commandwheel.write(ROOT, "0.2.0-rc.1", tmp_path)
    assert path.name == "gpushare_cli-0.2.0rc1-py3-none-any.whl"
    with zipfile.ZipFile(path) as wheel:
        names = wheel.namelist()
        about = "gpushare_cli-0.2.0rc1.dist-info"
        scripts = wheel.read(f"{about}/entry_points.txt").decode()
        metadata = wheel.read(f"{about}/METADATA").decode()
    assert {name.partition("/")[0] for name in names} == {
        *("gpucore", "gpukube", "gpuprobe", "gpuinspect"),
        about,
    }
    assert "gpuinspect/serving/chart/Chart.yaml" in names
    assert not any("/testing/" in name for name in names)
    assert "gpushare = gpuinspect.commands.main:main\n" in scripts
    assert "Requires-Dist: gpu" not in metadata
    assert "Requires-Dist: typer" in metadata


@pytest.mark.slow
def test_the_wheel_knows_its_version(tmp_path: Path) -> None:
    """`gpushare version` prints that of the release, with nothing of the repository on the path."""
    path = commandwheel.write(ROOT, "0.2.0-rc.1", tmp_path)
    code = (
        f"import sys; sys.path.insert(0, {str(path)!r})\n"
        "from gpuinspect.commands.main import version; version()"
    )
    line = [sys.executable, "-c", code]
    done = subprocess.run(line, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "gpushare 0.2.0-rc.1\n"
