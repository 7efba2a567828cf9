"""The kind node image: a local one, a pulled one, or one built here from Debian packages.

The order is that; a built image lives in the engine and, as a tar, in the cache folder, so that a
new or emptied engine gets it back in seconds. A local or pulled image is used as it is, whatever
Kubernetes version lies in it.
"""

import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from cluster import (
    cachedir,
    componentimages,
    debianimage,
    docker,
    imagecache,
    kubernetes,
    packages,
    preload,
)
from cluster.errors import ClusterError
from cluster.progress import say, step

_OFFICIAL = "kindest/node"
# The default image of kind 0.27, which Debian packages.
_PULLED = f"{_OFFICIAL}:v1.32.2"
_PULL_TIMEOUT_S = 300.0
_FILES = Path(__file__).parent / "node"
_KIND_SUITE = "trixie"
# The modules that decide what is in the image: a change in one of them makes a new image.
_RECIPE = ("nodeimage", "kubernetes", "componentimages", "debianimage", "preload")
_NODE_PROGRAMS = ("kubelet", "kubeadm", "kubectl")


@dataclass(frozen=True)
class NodeImage:
    """A node image the engine holds; `built_here` ones bring their own pod network."""

    name: str
    built_here: bool


def ensure() -> NodeImage:
    """The node image to use, present in the engine when this returns."""
    for name in docker.local_images(_OFFICIAL):
        return NodeImage(name, built_here=False)
    tag = built_tag()
    if docker.has_image(tag):
        return NodeImage(tag, built_here=True)
    if _pulled():
        return NodeImage(_PULLED, built_here=False)
    _demand_debian()
    say(f"{_OFFICIAL} is neither here nor to be pulled: a node image from Debian packages is used")
    imagecache.ensure(tag, kind="node-image", key=_key(), build=_build)
    return NodeImage(tag, built_here=True)


def built_tag() -> str:
    """The name of the image built from packages; it changes with everything it is made of."""
    return f"gpushare/kind-node:v{kubernetes.VERSION}-{_key()}"


def _key() -> str:
    scripts = [Path(__file__).with_name(f"{name}.py") for name in _RECIPE]
    return cachedir.content_key([], [*scripts, *_FILES.iterdir()])


def _pulled() -> bool:
    with step(f"try to pull {_PULLED}"):
        return docker.pull(_PULLED, timeout_s=_PULL_TIMEOUT_S)


def _demand_debian() -> None:
    try:
        packages.archive()
    except ClusterError as error:
        raise ClusterError(
            f"{_PULLED} is neither here nor to be pulled, and a node image cannot be built here "
            f"({error}): give the engine one with `docker load`"
        ) from error


def _build() -> None:
    programs = kubernetes.ensure()
    images = componentimages.ensure(programs)
    with tempfile.TemporaryDirectory(dir=cachedir.root(), prefix="context-") as name:
        _gather(Path(name), programs)
        with step("build the node's system"):
            system = _build_system(Path(name))
    # The final name comes last: an image that bears it is complete.
    with step("put the control plane's images into the node image"):
        preload.commit(system, images=images, tag=built_tag())


def _gather(context: Path, programs: Path) -> None:
    """Lay out what `node.Dockerfile` copies: kind's base files, ours, Kubernetes' programs."""
    source = context.with_name(f"{context.name}-kind")
    try:
        packages.unpack_source("kind", suite=_KIND_SUITE, into=source)
        shutil.copytree(source / "images/base/files", context / "kind")
    finally:
        shutil.rmtree(source, ignore_errors=True)
    shutil.copytree(_FILES, context / "ours")
    (context / "programs").mkdir()
    for program in _NODE_PROGRAMS:
        componentimages.place(programs / program, context / "programs")


def _build_system(context: Path) -> str:
    tag = f"gpushare/kind-node-system:{_key()}"
    arguments = {
        "BASE": debianimage.ensure(),
        "PAUSE": componentimages.PAUSE,
        "VERSION": kubernetes.VERSION,
    }
    dockerfile = context / "ours/node.Dockerfile"
    docker.build(tag, context=context, dockerfile=dockerfile, arguments=arguments)
    return tag
