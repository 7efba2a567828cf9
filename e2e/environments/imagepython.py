"""A Python like that of a service's image, for measurements without the image.

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
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).parents[2]
COMPILE_SECONDS: Final = 120
COMPILED: Final = shutil.ignore_patterns("__pycache__")


class ImageSource(NamedTuple):
    """What the image of a service is made of.

    Attributes:
        name: of the service, as of its folder and of its requirement file.
        libraries: of this repository.
        modules: whose imports are all that the service imports; the first has its ``main``.
    """

    name: str
    libraries: tuple[str, ...]
    modules: tuple[str, ...]

    @property
    def requirements(self) -> Path:
        """Versions of its packages."""
        return ROOT / "requirements" / f"{self.name}.txt"

    @property
    def dockerfile(self) -> Path:
        """Of its image."""
        return ROOT / "services" / self.name / "Dockerfile"

    @property
    def sources(self) -> Iterator[Path]:
        """Folders of its own packages."""
        members = (*(f"libs/{each}" for each in self.libraries), f"services/{self.name}")
        return (entry for member in members for entry in (ROOT / member / "src").iterdir())


EXTENDER: Final = ImageSource(
    "extender", ("gpucore", "gpukube"), ("gpuextender.__main__", "gpuextender.service")
)
DEVICE_PLUGIN: Final = ImageSource(
    "deviceplugin", ("gpucore", "gpukube", "gpuprobe"), ("gpudeviceplugin.__main__",)
)


class ImagePython:
    """A virtual environment in ``folder``.

    Attributes:
        command: starts the service.
        environ: variables of the process, besides those of this one.
    """

    def __init__(self, source: ImageSource, folder: Path) -> None:
        python = folder / "bin" / "python"
        start = f"import sys; from {source.modules[0]} import main; sys.exit(main())"
        self.command = (str(python), "-c", start)
        self.environ = {
            **variables(source.dockerfile.read_text()),
            "PYTHONPATH": "",
            "PYTHONPYCACHEPREFIX": str(folder / "bytecode"),
        }
        venv.create(folder, symlinks=True)
        version = f"python{sys.version_info.major}.{sys.version_info.minor}"
        _copy(_packages(source), folder / "lib" / version / "site-packages")
        self._compile(python, source.modules)

    def _compile(self, python: Path, modules: Iterable[str]) -> None:
        """One import of everything writes the bytecode, which the measured process only reads."""
        subprocess.run(
            [python, "-c", f"import {', '.join(modules)}"],
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


def _packages(source: ImageSource) -> Iterator[Path]:
    for name in required(source.requirements.read_text()):
        found = distribution(name)
        inside = {file.parts[0] for file in found.files or ()} - {"..", "__pycache__"}
        yield from (Path(str(found.locate_file(entry))) for entry in inside)
    yield from source.sources


def _copy(entries: Iterable[Path], folder: Path) -> None:
    for entry in entries:
        if entry.is_dir():
            shutil.copytree(entry, folder / entry.name, ignore=COMPILED, dirs_exist_ok=True)
        elif entry.suffix != ".pth":
            shutil.copy(entry, folder)
