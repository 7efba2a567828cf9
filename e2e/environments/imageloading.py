"""Images of the engine into the workers of a kind cluster, as early as these take any.

kind starts all nodes at once and is then busy with the control plane for most of a creation, while
the workers have nothing to do.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from host.commands import run_command, succeeds
from host.progress import step
from host.waiting import until

LOAD_SECONDS = 1200
CREATE_SECONDS = 1200
_ASK_SECONDS = 60


def load(kind: Path, cluster: str, *, workers: Sequence[str], images: Sequence[str]) -> None:
    """Put images into workers, where all pods run; kind skips those that are there.

    Raises:
        SetupError: kind failed; states how.
    """
    where = ["--name", cluster, "--nodes", ",".join(workers)]
    with step("load the images into the nodes"):
        run_command([kind, "load", "docker-image", *where, *images], timeout_s=LOAD_SECONDS)


def while_created(
    create: Callable[[], None], load_images: Callable[[], None], *, workers: Sequence[str]
) -> None:
    """Run ``create``, and ``load_images`` beside it from when the workers take images.

    Raises:
        SetupError: one of them failed; if both failed, the error is that of ``create``.
    """
    with ThreadPoolExecutor(max_workers=1) as beside:
        making = beside.submit(create)
        until(
            "workers take images",
            lambda: making.done() or all(map(_takes_images, workers)),
            seconds=CREATE_SECONDS,
        )
        try:
            if not (making.done() and making.exception()):
                load_images()
        finally:
            making.result()


def _takes_images(worker: str) -> bool:
    """Its containerd answers."""
    return succeeds(["docker", "exec", worker, "ctr", "version"], timeout_s=_ASK_SECONDS)
