"""The programs that drive a cluster: `kind`, and a `kubectl` that fits its Kubernetes version.

kind from PATH is used as it is; else Debian's package is installed, which needs libc alone and so
fits older releases too. kubectl must be within one minor version of the server: a cluster from
packages gets the kubectl built with it, any other the one on PATH or Debian's.
"""

import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from cluster import cachedir, kubernetes, packages
from cluster.errors import ClusterError
from cluster.nodeimage import NodeImage
from cluster.privilege import as_root, can_be_root
from cluster.progress import step

_SUITE = "trixie"


@dataclass(frozen=True)
class Tools:
    """Paths of the programs, for callers that must not depend on PATH."""

    kind: Path
    kubectl: Path


def ensure(image: NodeImage) -> Tools:
    """The programs for a cluster of this node image, installed where they are missing."""
    return Tools(kind=kind(), kubectl=kubectl(image))


def kind() -> Path:
    """The kind on PATH, installed from Debian's package when there is none."""
    found = shutil.which("kind")
    if found is None:
        _install_kind()
        found = shutil.which("kind")
    if found is None:
        raise ClusterError("Debian's package kind is installed but /usr/bin is not on PATH: add it")
    return Path(found)


def kubectl(image: NodeImage) -> Path:
    """A kubectl for clusters of this node image."""
    if image.built_here:
        return kubernetes.ensure() / "kubectl"
    found = shutil.which("kubectl")
    return Path(found) if found else _debian_kubectl()


def _install_kind() -> None:
    if not can_be_root():
        raise ClusterError(
            "kind is not on PATH and installing it needs root or passwordless sudo: install kind "
            "(a package from Debian trixie on) and put it on PATH"
        )
    with (
        step("install kind"),
        cachedir.locked("tools"),
        tempfile.TemporaryDirectory(dir=cachedir.root()) as folder,
    ):
        as_root(["dpkg", "--install", _kind_package(Path(folder))], timeout_s=120)


def _kind_package(folder: Path) -> Path:
    try:
        return packages.download("kind", suite=_SUITE, into=folder)
    except ClusterError as error:
        raise ClusterError(
            f"kind is not on PATH and its package was not found ({error}): install kind and put "
            "it on PATH"
        ) from error


def _debian_kubectl() -> Path:
    key = cachedir.content_key([_SUITE])
    folder = cachedir.entry("kubectl", key, _unpack_kubectl)
    return folder / "usr/bin/kubectl"


def _unpack_kubectl(folder: Path) -> None:
    with step("fetch kubectl"):
        packages.unpack("kubernetes-client", suite=_SUITE, into=folder)
