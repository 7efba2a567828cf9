"""The few Docker commands the images need, each with a deadline.

Images are built with the classic builder: Debian's engine has no BuildKit. Builds use the host's
network, so that package downloads work wherever they work on the host.
"""

import json
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path

from host.commands import run_command, succeeds
from host.fetching import with_retries

_CLASSIC = {"DOCKER_BUILDKIT": "0"}
_BUILD_TIMEOUT_S = 2700
"""Of one build, which may run under emulation on a busy machine."""


def has_image(name: str) -> bool:
    """True when the engine holds an image of this name."""
    return succeeds(["docker", "image", "inspect", name], timeout_s=30)


def local_images(repository: str) -> list[str]:
    """Names with tag of the local images of a repository, newest first."""
    listing = ["docker", "image", "ls", "--format", "{{.Repository}}:{{.Tag}}", repository]
    names = run_command(listing, timeout_s=30).split()
    return [name for name in names if not name.endswith(":<none>")]


def pull(name: str, *, timeout_s: float) -> bool:
    """Try to pull an image; False when the registry does not give it in time."""
    return succeeds(["docker", "pull", "--quiet", name], timeout_s=timeout_s)


def build(
    tag: str,
    *,
    context: Path,
    dockerfile: Path,
    arguments: Mapping[str, str],
    cached: bool = True,
) -> None:
    """Build an image from a context folder and a Dockerfile beside or outside it."""
    pairs = [word for name, value in arguments.items() for word in _build_argument(name, value)]
    options = ["--network=host", "--tag", tag, *pairs, *([] if cached else ["--no-cache"])]
    command = ["docker", "build", *options, "--file", str(dockerfile), str(context)]
    with_retries(lambda: run_command(command, timeout_s=_BUILD_TIMEOUT_S, env=_CLASSIC))


def cgroup_version() -> str:
    """`1` or `2`: the cgroup version of the engine's host."""
    return run_command(["docker", "info", "--format", "{{.CgroupVersion}}"], timeout_s=30).strip()


def identity(name: str) -> str:
    """The id of an image of the engine: equal ids are equal images."""
    return run_command(
        ["docker", "image", "inspect", "--format", "{{.Id}}", name], timeout_s=30
    ).strip()


def tag(name: str, other: str) -> None:
    """Give an image of the engine another name beside its own."""
    run_command(["docker", "tag", name, other], timeout_s=30)


def push(name: str) -> str:
    """Push an image to the registry that its name begins with; what the engine printed."""
    return run_command(["docker", "push", name], timeout_s=900)


def mark_used(name: str) -> None:
    """Have :func:`last_used` say that it was now."""
    tag(name, name)


def last_used(names: Sequence[str]) -> list[tuple[str, datetime]]:
    """When each image was given its name last; the year 1 where the engine does not know."""
    if not names:
        return []
    command = ["docker", "image", "inspect", "--format", "{{json .Metadata.LastTagTime}}", *names]
    found = [json.loads(line) for line in run_command(command, timeout_s=60).splitlines()]
    return [(name, datetime.fromisoformat(text)) for name, text in zip(names, found, strict=True)]


def remove_nameless(label: str, *, older_than: timedelta) -> None:
    """Take images that bear a label (`name=value`) and have no name from the engine, if so old."""
    age = f"until={older_than.total_seconds() / 3600:g}h"
    options = ["--force", "--filter", f"label={label}", "--filter", age]
    run_command(["docker", "image", "prune", *options], timeout_s=300)


def remove(names: Sequence[str]) -> None:
    """Take names, or ids without one, from the engine; an image goes with its last name."""
    run_command(["docker", "image", "rm", *names], timeout_s=120)


def import_rootfs(tar: Path, tag: str) -> None:
    """Make an image of a root file system."""
    run_command(["docker", "import", tar, tag], timeout_s=300)


def save(names: Sequence[str], file: Path) -> None:
    """Write images and their layers to a tar file."""
    run_command(["docker", "save", "--output", file, *names], timeout_s=600)


def load(file: Path) -> None:
    """Read images from a tar file made by `save`."""
    run_command(["docker", "load", "--quiet", "--input", file], timeout_s=600)


def _build_argument(name: str, value: str) -> tuple[str, str]:
    return ("--build-arg", f"{name}={value}")
