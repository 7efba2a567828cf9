"""Files of this machine that a served model gets: they travel as text in the release.

Nothing is followed later: a file that changes here does not change there.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from gpuinspect.serving.errors import FlagError

MOST_BYTES: Final = 512 * 1024
"""Maximum bytes of the files of a release: objects, at most 1 MiB each, hold them twice."""


def config_files(flag: str, texts: Iterable[str]) -> list[dict[str, Any]]:
    """``FILE`` or ``FILE:/PATH`` texts as the chart's ``configFiles``.

    Raises:
        FlagError: a file cannot be read or is no text, a place is no absolute path, or all of them
            are too large together.
    """
    found = [_file(flag, text) for text in texts]
    size = sum(len(file["content"].encode()) for file in found)
    if size > MOST_BYTES:
        raise FlagError(f"{flag}: {size} bytes, of at most {MOST_BYTES}: mount them with --data")
    return found


def _file(flag: str, text: str) -> dict[str, str]:
    name, colon, place = text.partition(":")
    path = Path(name).expanduser().absolute()
    if not name or (colon and not place.startswith("/")):
        raise FlagError(f"{flag} is '{text}': write FILE or FILE:/PATH/IN/CONTAINER")
    try:
        content = path.read_bytes().decode()
    except (OSError, UnicodeDecodeError) as error:
        raise FlagError(f"{flag} is '{text}': {error}") from error
    return {"path": place or str(path), "content": content}
