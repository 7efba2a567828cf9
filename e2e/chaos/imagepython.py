"""A Python like that of the device plugin's image, for measurements without the image.

It has the packages that the image installs and no other: more packages are imported where they are
found, such as ``rich`` by ``structlog``. They are copies, because libraries that other processes
map too would count in part. Variables are those of the image's Dockerfile, and modules are
compiled before the measurement, as in the image.
"""

import os
import re
import shutil
import subprocess
import sys
import venv
from collections.abc import Iterable, Iterator, Mapping
from importlib.metadata import distribution
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
REQUIREMENTS: Final = ROOT / "requirements" / "deviceplugin.txt"
DOCKERFILE: Final = ROOT / "services" / "deviceplugin" / "Dockerfile"
MEMBERS: Final = ("libs/gpucore", "libs/gpukube", "libs/gpuprobe", "services/deviceplugin")
START: Final = "import sys; from gpudeviceplugin.__main__ import main; sys.exit(main())"
COMPILE_SECONDS: Final = 120
COMPILED: Final = shutil.ignore_patterns("__pycache__")


class ImagePython:
    """A virtual environment in ``folder``.

    Attributes:
        command: starts the device plugin.
        environ: variables of the process, besides those of this one.
    """

    def __init__(self, folder: Path) -> None:
        python = folder / "bin" / "python"
        self.command = (str(python), "-c", START)
        self.environ = {
            **variables(DOCKERFILE.read_text()),
            "PYTHONPATH": "",
            "PYTHONPYCACHEPREFIX": str(folder / "bytecode"),
        }
        venv.create(folder, symlinks=True)
        version = f"python{sys.version_info.major}.{sys.version_info.minor}"
        _copy(_packages(), folder / "lib" / version / "site-packages")
        self._compile(python)

    def _compile(self, python: Path) -> None:
        """One import of everything writes the bytecode, which the measured process only reads."""
        subprocess.run(
            [python, "-c", "import gpudeviceplugin.__main__"],
            check=True,
            timeout=COMPILE_SECONDS,
            env={**os.environ, **self.environ, "PYTHONDONTWRITEBYTECODE": ""},
        )


def variables(dockerfile: str) -> Mapping[str, str]:
    """What the image sets for Python and for the allocator of the C library."""
    _, _, final = dockerfile.rpartition("\nFROM ")
    return dict(re.findall(r"\b((?:PYTHON|MALLOC)\w*)=(\S+)", final))


def required(requirements: str) -> list[str]:
    """The names in a requirement file with one version each."""
    return re.findall(r"^([\w.-]+)==", requirements, re.MULTILINE)


def _packages() -> Iterator[Path]:
    for name in required(REQUIREMENTS.read_text()):
        found = distribution(name)
        inside = {file.parts[0] for file in found.files or ()} - {"..", "__pycache__"}
        yield from (Path(str(found.locate_file(entry))) for entry in inside)
    for member in MEMBERS:
        yield from (ROOT / member / "src").iterdir()


def _copy(entries: Iterable[Path], folder: Path) -> None:
    for entry in entries:
        if entry.is_dir():
            shutil.copytree(entry, folder / entry.name, ignore=COMPILED, dirs_exist_ok=True)
        elif entry.suffix != ".pth":
            shutil.copy(entry, folder)
