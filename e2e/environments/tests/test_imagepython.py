"""What measurements of services take over from their images."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from environments.imagepython import (
    DEVICE_PLUGIN,
    EXTENDER,
    ImagePython,
    ImageSource,
    required,
    variables,
)


def test_variables_are_those_of_the_image_that_runs() -> None:
    """Not those of the stages that only build."""
    found = variables(DEVICE_PLUGIN.dockerfile.read_text())
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
    assert {"grpcio", "aiohttp", "structlog"} <= set(
        required(DEVICE_PLUGIN.requirements.read_text())
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("source", "level"), [(DEVICE_PLUGIN, 2), (EXTENDER, 0)], ids=["deviceplugin", "extender"]
)
def test_the_python_finds_the_packages_of_the_image_and_compiled_modules(
    tmp_path: Path, source: ImageSource, level: int
) -> None:
    """The development environment has ``rich``, which ``structlog`` would import."""
    python = ImagePython(source, tmp_path)
    program = (
        f"import importlib.util, json, sys; import {source.modules[-1]} as module;"
        "found = importlib.util.find_spec('rich');"
        "print(json.dumps([found, sys.flags.optimize, module.__spec__.cached]))"
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
    assert (rich, optimize) == (None, level)
    assert compiled.startswith(str(tmp_path))
    assert Path(compiled).is_file()
