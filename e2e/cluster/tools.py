"""The programs that drive a cluster: a `kind` that knows its Kubernetes, and its own `kubectl`.

kind from PATH is used if it is new enough; else it is compiled from its Go module, and where that
cannot be had Debian's package is installed. kubectl is the one in the node image, so that it fits
the API server whatever this machine has; one from PATH serves where the image's cannot run.
"""

import platform
import re
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from cluster import cachedir, docker, goprograms, gotoolchain, packages, release
from cluster.commands import run
from cluster.errors import ClusterError
from cluster.nodeimage import NodeImage
from cluster.privilege import as_root, can_be_root
from cluster.progress import step

_SUITE = "trixie"
_PROJECT = "sigs.k8s.io/kind"
_KUBECTL = "/usr/bin/kubectl"
_NEEDS_PINNED = (1, 36)


@dataclass(frozen=True)
class Tools:
    """Paths of the programs, for callers that must not depend on PATH."""

    kind: Path
    kubectl: Path


def ensure(image: NodeImage) -> Tools:
    """The programs for a cluster of this node image, made or installed where they are missing."""
    return Tools(kind=kind(image.version), kubectl=kubectl(image))


def kind(version: str) -> Path:
    """A kind for clusters of a Kubernetes version.

    Raises ClusterError where none is here or to be had.
    """
    found = shutil.which("kind")
    if found and _knows(Path(found), version):
        return Path(found)
    if goprograms.obtainable(f"{_PROJECT}@v{_pinned()}"):
        return _compiled()
    if found is None:
        _install_kind()
        found = shutil.which("kind")
    if found is None:
        raise ClusterError("Debian's package kind is installed but /usr/bin is not on PATH: add it")
    return Path(found)


def kubectl(image: NodeImage) -> Path:
    """The kubectl of a node image, or the one on PATH where that is no program for this system."""
    if platform.system() == "Linux":
        key = cachedir.content_key([docker.identity(image.name)])
        return (
            cachedir.entry("kubectl", key, lambda folder: _copy_kubectl(image, folder)) / "kubectl"
        )
    found = shutil.which("kubectl")
    if found is None:
        raise ClusterError("kubectl is not on PATH: install it")
    return Path(found)


def _knows(kind: Path, version: str) -> bool:
    """Whether a kind writes the kubeadm configuration of a version: v1beta4 from 1.36 on."""
    if tuple(map(int, release.minor(version).split("."))) < _NEEDS_PINNED:
        return True
    match = re.search(r"\bv?(\d+)\.(\d+)\.", run([kind, "version"], timeout_s=20))
    pinned = tuple(map(int, _pinned().split(".")[:2]))
    return match is not None and tuple(map(int, match.groups())) >= pinned


def _pinned() -> str:
    return goprograms.pinned("kind", _PROJECT)


def _compiled() -> Path:
    key = cachedir.content_key([gotoolchain.VERSION], goprograms.inputs("kind"))
    return cachedir.entry("kind", key, _compile_kind) / "kind"


def _compile_kind(folder: Path) -> None:
    with step("compile kind"):
        goprograms.compile_module(goprograms.MODULES / "kind", into=folder)


def _copy_kubectl(image: NodeImage, folder: Path) -> None:
    with step("take kubectl from the node image"):
        container = run(["docker", "create", image.name], timeout_s=60).strip()
        try:
            run(["docker", "cp", f"{container}:{_KUBECTL}", folder / "kubectl"], timeout_s=60)
        finally:
            run(["docker", "rm", container], timeout_s=60)


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
