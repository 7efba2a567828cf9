"""The programs that drive a cluster: a `kind` that supports its Kubernetes, and its own `kubectl`.

kind from PATH is used if it is new enough; else :mod:`offline` makes or installs one. kubectl is
the one in the node image, so that it fits the API server whatever this machine has; one from PATH
serves where the image's cannot run.
"""

import platform
import re
import shutil
from dataclasses import dataclass
from pathlib import Path

import offline
from cluster.nodeimage import NodeImage
from host import cachedir, docker
from host.commands import run_command
from host.errors import SetupError
from host.progress import step

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
    """A kind for clusters of a Kubernetes version: the one on PATH if it is new enough.

    Raises SetupError where none is here or to be had.
    """
    found = shutil.which("kind")
    if found and _knows(Path(found), version):
        return Path(found)
    return offline.ensure_kind()


def kubectl(image: NodeImage) -> Path:
    """The kubectl of a node image, or the one on PATH where that is no program for this system."""
    if platform.system() == "Linux":
        key = cachedir.content_key([docker.identity(image.name)])
        return (
            cachedir.entry("kubectl", key, lambda folder: _copy_kubectl(image, folder)) / "kubectl"
        )
    found = shutil.which("kubectl")
    if found is None:
        raise SetupError("kubectl is not on PATH: install it")
    return Path(found)


def _knows(kind: Path, version: str) -> bool:
    """Whether a kind writes the kubeadm configuration of a version: v1beta4 from 1.36 on."""
    if tuple(map(int, offline.minor(version).split("."))) < _NEEDS_PINNED:
        return True
    match = re.search(r"\bv?(\d+)\.(\d+)\.", run_command([kind, "version"], timeout_s=20))
    pinned = tuple(map(int, offline.kind_version().split(".")[:2]))
    return match is not None and tuple(map(int, match.groups())) >= pinned


def _copy_kubectl(image: NodeImage, folder: Path) -> None:
    with step("take kubectl from the node image"):
        container = run_command(["docker", "create", image.name], timeout_s=60).strip()
        try:
            run_command(
                ["docker", "cp", f"{container}:{_KUBECTL}", folder / "kubectl"], timeout_s=60
            )
        finally:
            run_command(["docker", "rm", container], timeout_s=60)
