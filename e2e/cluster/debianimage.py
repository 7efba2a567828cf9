"""A minimal Debian image made without an image registry: the base of every image we build.

debootstrap from the archive the machine's apt uses; https becomes http, because a fresh container
knows no private certificate authority and packages are signed anyway.
"""

import tempfile
from pathlib import Path

from cluster import cachedir, docker, packages
from cluster.errors import ClusterError
from cluster.privilege import as_root, can_be_root, installed
from cluster.progress import step

SUITE = "bookworm"


def ensure() -> str:
    """The name of the minimal Debian image, built when the engine does not hold it."""
    key = cachedir.content_key([SUITE], [Path(__file__)])
    tag = f"gpushare/debian:{SUITE}-{key}"
    if not docker.has_image(tag):
        _make(tag)
    return tag


def _make(tag: str) -> None:
    mirror = packages.archive().replace("https://", "http://")
    _install_debootstrap()
    with tempfile.TemporaryDirectory(dir=cachedir.root(), prefix="rootfs-") as name:
        tree, tar = Path(name) / "tree", Path(name) / "rootfs.tar"
        with step(f"debootstrap Debian {SUITE}"):
            options = ["--variant=minbase", "--include=ca-certificates"]
            as_root(["debootstrap", *options, SUITE, tree, mirror], timeout_s=900)
            exclude = [
                "--exclude=./var/cache/apt/archives/*.deb",
                "--exclude=./var/lib/apt/lists/*",
            ]
            as_root(["tar", "-C", tree, *exclude, "-cf", tar, "."], timeout_s=300)
            as_root(["rm", "-rf", tree], timeout_s=120)
        docker.import_rootfs(tar, tag)


def _install_debootstrap() -> None:
    if not can_be_root():
        raise ClusterError("building images from Debian packages needs root or passwordless sudo")
    if not installed("debootstrap"):
        with step("install debootstrap"):
            as_root(["apt-get", "install", "-y", "-q", "debootstrap"], timeout_s=300)
