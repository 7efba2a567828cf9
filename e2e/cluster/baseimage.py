"""The base of the service images: the official Python image, or Debian with its own Python."""

import offline
from host import docker, emulation
from host.architecture import Architecture
from host.progress import say, step

_OFFICIAL = "python:3.12-slim"
_PULL_TIMEOUT_S = 180.0


def ensure(target: Architecture | None = None) -> str:
    """The name of the base image, present in the engine when this returns.

    For another architecture than this machine's it is always made here, and runs under emulation.
    """
    if target is not None and target.foreign:
        emulation.ensure(target)
        return offline.ensure_base_image(target)
    if docker.has_image(_OFFICIAL):
        return _OFFICIAL
    built = offline.base_image_name()
    if docker.has_image(built):
        return built
    with step(f"try to pull {_OFFICIAL}"):
        if docker.pull(_OFFICIAL, timeout_s=_PULL_TIMEOUT_S):
            return _OFFICIAL
    say(f"{_OFFICIAL} is neither here nor to be pulled: Debian's own Python is used")
    return offline.ensure_base_image()
