"""What the measurement of the idle plugin takes over from the image."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from chaos.imagepython import DOCKERFILE, REQUIREMENTS, ImagePython, required, variables


def test_variables_are_those_of_the_image_that_runs() -> None:
    """Not those of the stages that only build."""
    found = variables(DOCKERFILE.read_text())
    assert found == {
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONUNBUFFERED": "1",
        "PYTHONOPTIMIZE": "2",
        "PYTHONNODEBUGRANGES": "1",
        "MALLOC_ARENA_MAX": "1",
    }


def test_packages_are_those_of_the_requirement_file() -> None:
    """Every entry has one version; hashes are no names."""
    text = "a-b==1.0 \\\n    --hash=sha256:c==\nd.e==2\n"
    assert required(text) == ["a-b", "d.e"]
    assert {"grpcio", "aiohttp", "structlog"} <= set(required(REQUIREMENTS.read_text()))


@pytest.mark.slow
def test_the_python_finds_the_packages_of_the_image_and_compiled_modules(tmp_path: Path) -> None:
    """The development environment has ``rich``, which ``structlog`` would import."""
    python = ImagePython(tmp_path)
    program = (
        "import importlib.util, json, sys, gpudeviceplugin.settings as s;"
        "print(json.dumps([importlib.util.find_spec('rich'), sys.flags.optimize, s.__cached__]))"
    )
    shown = subprocess.run(
        [python.command[0], "-c", program],
        env=os.environ | python.environ,
        capture_output=True,
        check=True,
        text=True,
        timeout=60,
    )
    rich, optimize, compiled = json.loads(shown.stdout)
    assert (rich, optimize) == (None, 2)
    assert compiled.startswith(str(tmp_path))
    assert Path(compiled).is_file()
