"""What the tests run on: an image, Python packages and C libraries, all of one architecture.

Packages and libraries are made on this machine, without an emulator: wheels are fetched for the
other architecture, and C is cross-compiled.
"""

import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import offline
from host import apt, cachedir, docker
from host.architecture import Architecture
from host.commands import run_command
from host.fetching import with_retries
from host.privilege import installed
from host.progress import step
from mocknvml import build as mocknvml
from standins.cuda import build as cuda

ROOT: Final = Path(__file__).resolve().parents[2]
REQUIREMENTS: Final = ROOT / "requirements" / "dev.txt"
_PYTHON: Final = "3.11"
"""Of the base image that is built here."""
_GLIBC: Final = "2_36"
_PROGRAMS: Final = "openssl procps"
_FETCH_TIMEOUT_S: Final = 1200


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """What one run of tests needs.

    Attributes:
        image: name of the image with Python, in the engine.
        packages: folder of the packages of the tests' environment.
        libraries: folder of a C library by the name of its entry in the cache folder.
    """

    image: str
    packages: Path
    libraries: dict[str, Path]


def ensure(target: Architecture) -> Inputs:
    """Everything for tests on an architecture, made if needed; half an hour the first time.

    Raises:
        SetupError: a package, the compiler or the emulator cannot be had.
    """
    image = _image(offline.ensure_base_image(target), target)
    return Inputs(image=image, packages=_packages(target), libraries=libraries(target))


def libraries(target: Architecture) -> dict[str, Path]:
    """The C libraries that tests load, cross-compiled."""
    if not installed(target.compiler):
        package = f"gcc-{target.machine.replace('_', '-')}-linux-gnu"
        with step(f"install {package}"):
            apt.install(package, recommended=True)
    return {
        mocknvml.name(): mocknvml.ensure(compiler=target.compiler),
        cuda.name(): cuda.ensure(compiler=target.compiler),
    }


def dockerfile(base: str) -> str:
    """The text of the Dockerfile that adds the programs that tests call."""
    return (
        f"FROM {base}\n"
        "RUN apt-get update -q && DEBIAN_FRONTEND=noninteractive apt-get install -y -q "
        f"--no-install-recommends {_PROGRAMS} && rm -rf /var/lib/apt/lists/*\n"
    )


def packages_command(target: Architecture, into: Path) -> list[str | Path]:
    """The command that puts the wheels of the tests' environment into a folder, by hash."""
    return [
        *(Path(sys.executable).with_name("uv"), "pip", "install", "--quiet"),
        *("--require-hashes", "--only-binary=:all:", f"--python-version={_PYTHON}"),
        f"--python-platform={target.machine}-manylinux_{_GLIBC}",
        f"--target={into}",
        f"--requirement={REQUIREMENTS}",
    ]


def _image(base: str, target: Architecture) -> str:
    text = dockerfile(base)
    tag = f"gpushare/test-base:{target.name}-{cachedir.content_key([text])}"
    if not docker.has_image(tag):
        with tempfile.TemporaryDirectory(dir=cachedir.root(), prefix="context-") as folder:
            file = Path(folder) / "Dockerfile"
            file.write_text(text)
            with step(f"build the image of the tests for {target.name}"):
                docker.build(tag, context=Path(folder), dockerfile=file, arguments={})
    return tag


def _packages(target: Architecture) -> Path:
    key = cachedir.content_key([_PYTHON, _GLIBC, target.machine], [REQUIREMENTS])

    def fill(folder: Path) -> None:
        with step(f"fetch the packages of the tests for {target.name}"):
            command = packages_command(target, folder)
            with_retries(lambda: run_command(command, timeout_s=_FETCH_TIMEOUT_S))

    return cachedir.entry(f"test-packages-{target.name}", key, fill)
