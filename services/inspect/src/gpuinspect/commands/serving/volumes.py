"""The flags of ``gpushare serve SERVER`` for what lies in the container beside its image.

As in :mod:`gpuinspect.commands.serving.flags`, :func:`volumes` is never called by name: its
signature is part of that of the commands. What it returns are values of the chart.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from gpuinspect.errors import FlagError
from gpuinspect.serving.flagtexts import data_mounts, mounts, with_expressions

MOST_BYTES: Final = 512 * 1024
"""Maximum bytes of the files of a release: objects, at most 1 MiB each, hold them twice."""
Texts = list[str]
Data = Annotated[
    Texts,
    typer.Option(
        "-d",
        "--data",
        help="volume claim to mount, CLAIM:/PATH; read-only as CLAIM:/PATH:ro",
        metavar="DATA",
    ),
]
DataExpression = Annotated[
    Texts,
    typer.Option(
        "--data-subpath-expr",
        help="directory of a claim to mount instead of all of it; $(ARENA_POD_NAME) "
        "stands for a pod",
        metavar="CLAIM:EXPRESSION",
    ),
]
DataDir = Annotated[
    Texts,
    typer.Option(
        help="directory of the node to mount, /HOSTPATH:/PATH; read-only as /HOSTPATH:/PATH:ro",
        metavar="DATA",
    ),
]
EmptyDir = Annotated[
    Texts,
    typer.Option(
        "--empty-dir",
        "--temp-dir",
        help="empty directory with the lifetime of the pod",
        metavar="NAME:/PATH",
    ),
]
EmptyExpression = Annotated[
    Texts,
    typer.Option(
        "--empty-dir-subpath-expr",
        "--temp-dir-subpath-expr",
        help="directory of an empty volume to mount instead of all of it",
        metavar="NAME:EXPRESSION",
    ),
]
ConfigFile = Annotated[
    Texts,
    typer.Option(
        help="local text file to copy into the container, by default to the same path",
        metavar="FILE[:/PATH]",
    ),
]
SharedMemory = Annotated[
    str,
    typer.Option(
        "--share-memory",
        help="size of /dev/shm, such as 2Gi; not on GPUs with isolation mode mps",
    ),
]


def volumes(
    *,
    data: Data = [],  # noqa: B006 - typer copies it
    data_subpath_expr: DataExpression = [],  # noqa: B006 - as above
    data_dir: DataDir = [],  # noqa: B006 - as above
    empty_dir: EmptyDir = [],  # noqa: B006 - as above
    empty_dir_subpath_expr: EmptyExpression = [],  # noqa: B006 - as above
    config_file: ConfigFile = [],  # noqa: B006 - as above
    share_memory: SharedMemory = "",
) -> dict[str, Any]:
    """Values of the chart for what is mounted; none for flags that are not given.

    Raises:
        FlagError: a text or a file cannot be read.
    """
    claims = data_mounts("--data", "claim", data)
    empty = mounts("--empty-dir", "name", empty_dir)
    given = {
        "data": with_expressions("--data-subpath-expr", "claim", claims, data_subpath_expr),
        "dataDirs": data_mounts("--data-dir", "hostPath", data_dir),
        "emptyDirs": with_expressions(
            "--empty-dir-subpath-expr", "name", empty, empty_dir_subpath_expr
        ),
        "configFiles": config_files("--config-file", config_file),
        "sharedMemory": share_memory,
    }
    return {name: value for name, value in given.items() if value}


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
