"""A minimal Debian image made without an image registry: the base of every image we build.

debootstrap from the archive the machine's apt uses; https becomes http, because a fresh container
knows no private certificate authority and packages are signed anyway. The engine's classic builder
marks an image with its own architecture, whatever runs in it; :mod:`images.settled` corrects that.
"""

import tempfile
from functools import partial
from pathlib import Path

from host import apt, architecture, cachedir, docker, emulation
from host.architecture import Architecture
from host.errors import SetupError
from host.fetching import with_retries
from host.privilege import as_root, can_be_root, installed
from host.progress import step
from offline import packages

SUITE = "bookworm"
_OPTIONS = ("--variant=minbase", "--include=ca-certificates")
_TIMEOUT_S = 1800
"""Under emulation; a minute without."""
_LEFT_OUT = ("--exclude=./var/cache/apt/archives/*.deb", "--exclude=./var/lib/apt/lists/*")


def name(target: Architecture | None = None) -> str:
    """The image's name, whether it is there or not; `target`: this machine's where it is None."""
    suffix = (target or architecture.named("")).suffix()
    key = cachedir.content_key([SUITE, *_OPTIONS, *_LEFT_OUT])
    return f"gpushare/debian:{SUITE}{suffix}-{key}"


def ensure(target: Architecture | None = None) -> str:
    """The name of the minimal Debian image, built when the engine does not hold it."""
    tag = name(target)
    if not docker.has_image(tag):
        _make(tag, target or architecture.named(""))
    return tag


def _make(tag: str, target: Architecture) -> None:
    emulation.ensure(target)
    mirror = packages.archive().replace("https://", "http://")
    _install_debootstrap()
    with tempfile.TemporaryDirectory(dir=cachedir.root(), prefix="rootfs-") as folder:
        tree, tar = Path(folder) / "tree", Path(folder) / "rootfs.tar"
        with step(f"debootstrap Debian {SUITE} for {target.name}"):
            with_retries(partial(_debootstrap, tree, mirror, target))
            as_root(["tar", "-C", tree, *_LEFT_OUT, "-cf", tar, "."], timeout_s=300)
            as_root(["rm", "-rf", tree], timeout_s=120)
        docker.import_rootfs(tar, tag)


def _debootstrap(tree: Path, mirror: str, target: Architecture) -> None:
    as_root(["rm", "-rf", tree], timeout_s=120)
    options = [f"--arch={target.name}", *_OPTIONS]
    as_root(["debootstrap", *options, SUITE, tree, mirror], timeout_s=_TIMEOUT_S)


def _install_debootstrap() -> None:
    if not can_be_root():
        raise SetupError("building images from Debian packages needs root or passwordless sudo")
    if not installed("debootstrap"):
        with step("install debootstrap"):
            apt.install("debootstrap", recommended=True)
