"""Unix sockets: their names, whether there is a server, and removing those without one.

A path that is too long for Linux gets a short name instead.
"""

import os
import socket
from collections.abc import Iterable
from pathlib import Path
from typing import Final
from zlib import crc32

import structlog

log = structlog.get_logger()

LONGEST_SOCKET: Final = 107
"""Bytes of the path of a socket in Linux."""


def socket_in(directory: Path, name: str, *, short: str = "") -> Path:
    """The socket of this name, or ``short`` and a hash of 7 digits where its path is too long."""
    path = directory / name
    if len(os.fsencode(path)) <= LONGEST_SOCKET:
        return path
    return directory / f"{short}{crc32(name.encode()) % 16**7:07x}.sock"


def connect_error(path: Path, kind: int = socket.SOCK_STREAM) -> OSError | None:
    """Why nothing accepts a connection at the socket now; ``None`` where something does.

    It does not wait: BlockingIOError is a process that listens, and whose queue is full.
    """
    try:
        with socket.socket(socket.AF_UNIX, kind) as client:
            client.settimeout(0)
            client.connect(os.fspath(path))
    except OSError as error:
        return error
    return None


def is_served(path: Path) -> bool:
    """Some process listens at the socket, however busy it is."""
    error = connect_error(path)
    return error is None or isinstance(error, BlockingIOError)


def remove_dead(paths: Iterable[Path]) -> None:
    """Remove sockets without a server."""
    for path in paths:
        error = connect_error(path)
        if isinstance(error, ConnectionRefusedError) and path.is_socket():
            log.info("removing the socket of a plugin that has ended", socket=str(path))
            remove(path)
        elif error is not None:
            log.debug("socket left alone", socket=str(path), why=str(error))


def remove(path: Path) -> None:
    """Remove a socket; without a server it does no harm, so a failure is only logged."""
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        log.warning("cannot remove a socket", socket=str(path), why=str(error))
