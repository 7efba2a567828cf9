"""What a base image offers: its interpreter and the wheels that fit it.

Found by running the image once without a network. Nothing is remembered between runs.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass

from host import docker
from host.commands import run_command
from host.errors import SetupError

_TIMEOUT_S = 120
_OLDEST_GLIBC_MINOR = 5
"""manylinux tags start at glibc 2.5."""
_PROBE = (
    "import json, platform, sys; print(json.dumps({'python': list(sys.version_info[:2]), "
    "'glibc': platform.libc_ver()[1], 'machine': platform.machine()}))"
)


@dataclass(frozen=True, kw_only=True)
class Base:
    """An image in the engine that has `python3` with venv.

    Attributes:
        name: of the image.
        id: content id, so that an image built on another base has another key.
        python: such as `3.11`.
        glibc: such as `2.36`.
        machine: such as `x86_64`.
    """

    name: str
    id: str
    python: str
    glibc: str
    machine: str

    def platforms(self) -> Iterator[str]:
        """Wheel platforms that run here, as pip spells them, newest first."""
        major, minor = (int(part) for part in self.glibc.split(".")[:2])
        if major != 2:
            raise SetupError(f"{self.name} has C library {self.glibc}, wheels need glibc 2")
        for older in range(minor, _OLDEST_GLIBC_MINOR - 1, -1):
            yield f"manylinux_2_{older}_{self.machine}"
        yield f"manylinux2014_{self.machine}"


def probe(name: str) -> Base:
    """Look into an image of the engine; SetupError when it has no usable `python3`."""
    options = ["--rm", "--network=none", "--entrypoint", "python3"]
    answer = run_command(["docker", "run", *options, name, "-c", _PROBE], timeout_s=_TIMEOUT_S)
    return read(name, identity=docker.identity(name), answer=answer)


def read(name: str, *, identity: str, answer: str) -> Base:
    """The base that the probe's answer describes."""
    found = json.loads(answer)
    if not found["glibc"]:
        raise SetupError(f"{name} has no glibc: the wheels need a Debian-like base image")
    return Base(
        name=name,
        id=identity,
        python=".".join(map(str, found["python"])),
        glibc=found["glibc"],
        machine=found["machine"],
    )
