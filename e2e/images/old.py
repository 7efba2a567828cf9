"""Lets go of images of ours that nothing has requested lately: every edit makes a new one.

The engine knows when an image was given its name, and `build` gives it anew at every use. Only
repositories of the catalogue are looked at, and what a container runs is left alone. Stages of
builds, which have no name, are distinguished from those of others by a label.
"""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Final

from host import docker
from host.errors import SetupError
from host.progress import say

KEPT: Final = timedelta(days=14)
STAGE: Final = "org.opencontainers.image.vendor=gpushare"
"""The label of stages. Images with a name bear it too, and are never removed for it."""


def forget(repositories: Iterable[str], *, keep: Iterable[str]) -> None:
    """Remove the images of these repositories that were not used for :data:`KEPT`.

    Another build may remove images meanwhile: what cannot be looked at or removed stays.

    Args:
        repositories: such as `gpushare/extender`.
        keep: images that stay, however old.
    """
    names = [name for each in repositories for name in docker.local_images(each)]
    try:
        used = docker.last_used(names)
    except SetupError as reason:
        say(f"old images stay: {reason}")
        return
    for name in outdated(used, now=datetime.now(UTC), keep=keep):
        try:
            docker.remove([name])
        except SetupError as reason:
            say(f"{name} stays: {reason}")
    try:
        docker.remove_nameless(STAGE, older_than=KEPT)
    except SetupError as reason:
        say(f"old stages of builds stay: {reason}")


def outdated(
    used: Iterable[tuple[str, datetime]], *, now: datetime, keep: Iterable[str]
) -> list[str]:
    """Those whose last use is too long ago; of one that the engine knows no use of, nothing."""
    kept = frozenset(keep)
    return [
        name
        for name, when in used
        if name not in kept and datetime.min.replace(tzinfo=UTC) < when < now - KEPT
    ]
