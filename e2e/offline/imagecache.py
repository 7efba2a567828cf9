"""Images that are built here and kept: in the engine while it lives, as a tar in the cache folder.

An emptied or new engine gets an image back from its tar in seconds instead of minutes.
"""

from collections.abc import Callable
from pathlib import Path

from host import cachedir, docker
from host.progress import step

_TAR = "image.tar"


def ensure(tag: str, *, kind: str, key: str, build: Callable[[], None]) -> None:
    """Return with the image `tag` in the engine: there already, read back, or built and kept.

    `kind` and `key` name the cache entry; `build` must leave the image `tag` in the engine.
    """
    if docker.has_image(tag):
        return
    folder = cachedir.entry(kind, key, lambda partial: _build_and_save(tag, build, partial))
    if not docker.has_image(tag):
        with step(f"load {tag} from the cache"):
            docker.load(folder / _TAR)


def _build_and_save(tag: str, build: Callable[[], None], folder: Path) -> None:
    build()
    with step(f"save {tag} in the cache"):
        docker.save([tag], folder / _TAR)
