"""The kind node image: a local one, a pulled one, or one built here.

The order is that, unless one that was built before is in the engine: then no registry is tried. A
built image lives in the engine and, as a tar, in the cache folder, so that a new or emptied engine
gets it back in seconds. A local image is used as it is, whatever Kubernetes version lies in it,
unless `KUBERNETES` names another.
"""

from dataclasses import dataclass

import offline
from host import docker
from host.commands import run_command
from host.errors import SetupError
from host.progress import say, step

_OFFICIAL = "kindest/node"
# There is not one for every patch version.
_PULLED = {offline.NEWEST: "v1.37.0", offline.OLDEST: "v1.20.15"}
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
        return not (self.built_here and self.version == offline.OLDEST)

    def described(self) -> str:
        """One line for whoever reads the output of a run."""
        origin = "built here" if self.built_here else "local or pulled"
        return f"Kubernetes {self.version}, node image {self.name} ({origin})"


def ensure() -> NodeImage:
    """The node image to use, present in the engine when this returns."""
    requested = offline.requested_version()
    found = (
        _local(requested)
        or _built(requested or offline.NEWEST)
        or _pulled(requested or offline.NEWEST)
    )
    return found or _made(offline.chosen_version())


def _local(requested: str) -> NodeImage | None:
    """The newest official image of the engine, of the version that is requested for if one is."""
    for name in docker.local_images(_OFFICIAL):
        version = _version(name)
        if not requested or offline.minor(version) == offline.minor(requested):
            return NodeImage(name, version, built_here=False)
    return None


def _built(version: str) -> NodeImage | None:
    tag = offline.node_image_name(version)
    return NodeImage(tag, version, built_here=True) if docker.has_image(tag) else None


def _pulled(version: str) -> NodeImage | None:
    name = f"{_OFFICIAL}:{_PULLED.get(version, f'v{version}')}"
    with step(f"try to pull {name}"):
        if not docker.pull(name, timeout_s=_PULL_TIMEOUT_S):
            return None
    return NodeImage(name, _version(name), built_here=False)


def _made(version: str) -> NodeImage:
    if not docker.has_image(offline.node_image_name(version)):
        _demand_packages()
        say(f"no {_OFFICIAL} image is here or to be pulled: one of Kubernetes {version} is built")
    return NodeImage(offline.ensure_node_image(version), version, built_here=True)


def _version(name: str) -> str:
    """The Kubernetes version in an image, as kind itself reads it."""
    command = ["docker", "run", "--rm", "--entrypoint", "cat", name, "/kind/version"]
    return run_command(command, timeout_s=60).strip().removeprefix("v")


def _demand_packages() -> None:
    try:
        offline.check_package_archive()
    except SetupError as error:
        raise SetupError(
            f"no {_OFFICIAL} image is here or to be pulled, and a node image cannot be built here "
            f"({error}): give the engine one with `docker load`"
        ) from error
