"""The flags of ``gpushare serve SERVER`` for what lies in the container beside its image.

As in :mod:`gpuinspect.commands.serving.flags`, :func:`volumes` is never called by name: its
signature is part of that of the commands. What it returns are values of the chart.
"""

from typing import Annotated, Any

import typer

from gpuinspect.serving.flagtexts import mounts, with_expressions
from gpuinspect.serving.localfiles import config_files

Texts = list[str]

Data = Annotated[
    Texts, typer.Option("-d", "--data", help="volume claim to mount, CLAIM:/PATH", metavar="DATA")
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
    Texts, typer.Option(help="directory of the node to mount, /HOSTPATH:/PATH", metavar="DATA")
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
    claims = mounts("--data", "claim", data)
    empty = mounts("--empty-dir", "name", empty_dir)
    given = {
        "data": with_expressions("--data-subpath-expr", "claim", claims, data_subpath_expr),
        "dataDirs": mounts("--data-dir", "hostPath", data_dir),
        "emptyDirs": with_expressions(
            "--empty-dir-subpath-expr", "name", empty, empty_dir_subpath_expr
        ),
        "configFiles": config_files("--config-file", config_file),
        "sharedMemory": share_memory,
    }
    return {name: value for name, value in given.items() if value}
