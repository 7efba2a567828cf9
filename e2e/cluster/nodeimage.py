"""The kind node image: a local one, a pulled one, or one built here.

The order is that, unless one that was built before is in the engine: then no registry is tried. A
built image lives in the engine and, as a tar, in the cache folder, so that a new or emptied engine
gets it back in seconds. A local image is used as it is, whatever Kubernetes version lies in it,
unless `KUBERNETES` names another.
"""

from dataclasses import dataclass

from cluster import docker, imagecache, nodebuild, packages, release
from cluster.commands import run
from cluster.errors import ClusterError
from cluster.progress import say, step

_OFFICIAL = "kindest/node"
# There is not one for every patch version.
_PULLED = {release.NEWEST: "v1.37.0", release.OLDEST: "v1.20.15"}
_PULL_TIMEOUT_S = 300.0


@dataclass(frozen=True)
class NodeImage:
    """A node image the engine holds.

    Attributes:
        version: of Kubernetes, without a `v`.
        built_here: made on this machine by this package.
    """

    name: str
    version: str
    built_here: bool

    @property
    def has_dns(self) -> bool:
        """Whether CoreDNS is in it: nothing packages one that old."""
        return not (self.built_here and self.version == release.OLDEST)

    def described(self) -> str:
        """One line for whoever reads the output of a run."""
        origin = "built here" if self.built_here else "local or pulled"
        return f"Kubernetes {self.version}, node image {self.name} ({origin})"


def ensure() -> NodeImage:
    """The node image to use, present in the engine when this returns."""
    asked = release.requested()
    found = _local(asked) or _built(asked or release.NEWEST) or _pulled(asked or release.NEWEST)
    return found or _made(release.chosen())


def built_tag(version: str) -> str:
    """The name of the image built of a version; it changes with everything it is made of."""
    return f"gpushare/kind-node:v{version}-{nodebuild.key(version)}"


def _local(asked: str) -> NodeImage | None:
    """The newest official image of the engine, of the version that is asked for if one is."""
    for name in docker.local_images(_OFFICIAL):
        version = _version(name)
        if not asked or release.minor(version) == release.minor(asked):
            return NodeImage(name, version, built_here=False)
    return None


def _built(version: str) -> NodeImage | None:
    tag = built_tag(version)
    return NodeImage(tag, version, built_here=True) if docker.has_image(tag) else None


def _pulled(version: str) -> NodeImage | None:
    name = f"{_OFFICIAL}:{_PULLED.get(version, f'v{version}')}"
    with step(f"try to pull {name}"):
        if not docker.pull(name, timeout_s=_PULL_TIMEOUT_S):
            return None
    return NodeImage(name, _version(name), built_here=False)


def _made(version: str) -> NodeImage:
    tag, key = built_tag(version), nodebuild.key(version)
    if not docker.has_image(tag):
        _demand_debian()
        say(f"no {_OFFICIAL} image is here or to be pulled: one of Kubernetes {version} is built")
        kind = f"node-image-{release.minor(version)}"
        imagecache.ensure(tag, kind=kind, key=key, build=lambda: nodebuild.build(version, tag))
    return NodeImage(tag, version, built_here=True)


def _version(name: str) -> str:
    """The Kubernetes version in an image, as kind itself reads it."""
    command = ["docker", "run", "--rm", "--entrypoint", "cat", name, "/kind/version"]
    return run(command, timeout_s=60).strip().removeprefix("v")


def _demand_debian() -> None:
    try:
        packages.archive()
    except ClusterError as error:
        raise ClusterError(
            f"no {_OFFICIAL} image is here or to be pulled, and a node image cannot be built here "
            f"({error}): give the engine one with `docker load`"
        ) from error
