"""Which images there are and what each is made of; a new service is one line here.

The tag of an image is the key of everything that can change it, so an unchanged tree builds nothing
and a cluster never runs an old image under a new name.
"""

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from host import architecture, cachedir
from images.base import Base

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).resolve().parent
_STANDINS = HERE.parent / "standins"
_CORE = ROOT / "libs" / "gpucore"
_KUBE = ROOT / "libs" / "gpukube"
_PROBE = ROOT / "libs" / "gpuprobe"
_RUNTIME = HERE / "runtime"
_BUILDER = tuple(HERE / name for name in ("build.py", "catalogue.py", "settled.py", "wheels.py"))


@dataclass(frozen=True, kw_only=True)
class Image:
    """One image.

    Attributes:
        name: last part of the repository, such as `extender`.
        dockerfile: its own.
        requirements: locked file of what it installs; None where it installs nothing.
        members: folders of the workspace members it installs, dependencies first.
        files: what its Dockerfile copies besides.
        ground: the image of ours that its last stage stands on; None for the base itself.
    """

    name: str
    dockerfile: Path
    requirements: Path | None = None
    members: tuple[Path, ...] = ()
    files: tuple[Path, ...] = ()
    ground: "Image | None" = None

    def tag(self, base: Base) -> str:
        """Repository and content key."""
        files = [self.dockerfile, *_BUILDER, *self.files]
        files += [self.requirements] if self.requirements else []
        ground = [self.ground.tag(base)] if self.ground else []
        key = cachedir.content_key([base.id, *ground, *_sources(self.members)], files)
        return f"gpushare/{self.name}:{key}{architecture.suffix(base.machine)}"


RUNTIME = Image(name="runtime", dockerfile=_RUNTIME / "Dockerfile", files=(_RUNTIME / "slim.py",))


def _service(name: str, *more: Path) -> Image:
    folder = ROOT / "services" / name
    return Image(
        name=name,
        dockerfile=folder / "Dockerfile",
        requirements=ROOT / "requirements" / f"{name}.txt",
        members=(_CORE, _KUBE, *more, folder),
        files=(_RUNTIME / "prune.py",),
        ground=RUNTIME,
    )


EXTENDER = _service("extender")
DEVICE_PLUGIN = _service("deviceplugin", _PROBE)
INSPECT = _service("inspect", _PROBE)
SAMPLE = Image(name="sample", dockerfile=HERE / "sample" / "Dockerfile", ground=RUNTIME)
MODEL_SERVER = Image(
    name="modelserver",
    dockerfile=_STANDINS / "modelserver" / "Dockerfile",
    files=(_STANDINS / "modelserver" / "server.py",),
    ground=RUNTIME,
)
ALL = (EXTENDER, DEVICE_PLUGIN, INSPECT, SAMPLE, MODEL_SERVER)
GROUNDS_FIRST = (RUNTIME, *ALL)
"""In an order in which they can be built."""


def _sources(members: Iterable[Path]) -> list[str]:
    """Path and content digest of every file that goes into the members' wheels."""
    files = sorted(
        file
        for member in members
        for file in [member / "pyproject.toml", *_files(member / "src")]
        if "__pycache__" not in file.parts
    )
    return [f"{file.relative_to(ROOT)} {cachedir.content_key([], [file])}" for file in files]


def _files(folder: Path) -> Iterator[Path]:
    """All files below a folder, through links to folders too: wheels hold what these lead to."""
    for path, _, names in os.walk(folder, followlinks=True):
        yield from (Path(path) / name for name in names)
