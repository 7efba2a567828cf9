"""A minimal Debian image made without an image registry: the base of every image we build.

debootstrap from the archive the machine's apt uses; https becomes http, because a fresh container
knows no private certificate authority and packages are signed anyway.
"""

import tempfile
from functools import partial
from pathlib import Path

from host import cachedir, docker
from host.errors import SetupError
from host.fetching import APT, with_retries
from host.privilege import as_root, can_be_root, installed
from host.progress import step
from offline import packages

SUITE = "bookworm"
_OPTIONS = ("--variant=minbase", "--include=ca-certificates")
_LEFT_OUT = ("--exclude=./var/cache/apt/archives/*.deb", "--exclude=./var/lib/apt/lists/*")


def name() -> str:
    """The image's name, whether it is there or not."""
    return f"gpushare/debian:{SUITE}-{cachedir.content_key([SUITE, *_OPTIONS, *_LEFT_OUT])}"


def ensure() -> str:
    """The name of the minimal Debian image, built when the engine does not hold it."""
    tag = name()
    if not docker.has_image(tag):
        _make(tag)
    return tag


def _make(tag: str) -> None:
    mirror = packages.archive().replace("https://", "http://")
    _install_debootstrap()
    with tempfile.TemporaryDirectory(dir=cachedir.root(), prefix="rootfs-") as folder:
        tree, tar = Path(folder) / "tree", Path(folder) / "rootfs.tar"
        with step(f"debootstrap Debian {SUITE}"):
            with_retries(partial(_debootstrap, tree, mirror))
            as_root(["tar", "-C", tree, *_LEFT_OUT, "-cf", tar, "."], timeout_s=300)
            as_root(["rm", "-rf", tree], timeout_s=120)
        docker.import_rootfs(tar, tag)


def _debootstrap(tree: Path, mirror: str) -> None:
    as_root(["rm", "-rf", tree], timeout_s=120)
    as_root(["debootstrap", *_OPTIONS, SUITE, tree, mirror], timeout_s=900)


def _install_debootstrap() -> None:
    if not can_be_root():
        raise SetupError("building images from Debian packages needs root or passwordless sudo")
    if not installed("debootstrap"):
        with step("install debootstrap"):
            as_root(["apt-get", *APT, "install", "-y", "-q", "debootstrap"], timeout_s=300)
