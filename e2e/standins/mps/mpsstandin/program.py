"""The command line: `-d` and `-f` start a daemon, nothing sends commands from stdin to one."""

import os
import socket
import sys
from collections.abc import Sequence
from functools import partial
from typing import TextIO

from mpsstandin import faults
from mpsstandin.daemon import COMMANDS, LINE, StandInDaemon, StartError
from mpsstandin.log import DaemonLog, writable
from mpsstandin.place import MpsDirectories

HELP = "A stand-in for the CUDA MPS control program: no GPU is behind it."
LONGEST_SOCKET = 107
_HELP = frozenset({"-h", "--help"})
_START = frozenset({"-d", "-f"})
_MULTI_USER = frozenset({"-M", "-multiuser-server", "--multiuser-server"})


def main(arguments: Sequence[str]) -> int:
    """Run; the exit status is that of the real program.

    With options that it does not know, that one sends commands, as without any.
    """
    place, words = MpsDirectories.of_environment(), set(arguments)
    if words & _HELP:
        print(HELP)
        return 0
    broken = faults.words(place.pipe)
    known = _START if "old" in broken else _START | _MULTI_USER
    if not words <= known or len(words & _START) != 1:
        return _commands(place)
    if "crash" in broken:
        return _refuse("Failed to start: a fault was requested")
    return _daemon(place, multi_user=bool(words & _MULTI_USER), background="-d" in words)


def _daemon(place: MpsDirectories, *, multi_user: bool, background: bool) -> int:
    if len(os.fsencode(place.privileged)) > LONGEST_SOCKET:
        return 1
    if not writable(place.log):
        print(
            f"Warning: Failed writing log files to directory [{place.log}]. "
            "No logs will be available.",
            flush=True,
        )
    started = os.pipe() if background else None
    if started and os.fork():
        os.close(started[1])
        return 0 if os.read(started[0], 1) else 1
    try:
        log = DaemonLog(place.log if background else None)
        daemon = StandInDaemon(place, log, multi_user=multi_user)
    except StartError as error:
        return _refuse(str(error))
    daemon.serve(partial(_detach, started[1]) if started else lambda: None)
    return 0


def _detach(started: int) -> None:
    """Leave the terminal, and let the process that was started return."""
    os.setsid()
    nothing = os.open(os.devnull, os.O_RDWR)
    for standard in range(3):
        os.dup2(nothing, standard)
    os.write(started, b"+")
    os.close(started)


def _commands(place: MpsDirectories) -> int:
    """Each line of stdin is a command; the daemon's answers go to stdout."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as peer:
        try:
            _connect(peer, place)
        except OSError:
            return _refuse("Cannot find MPS control daemon process", sys.stderr)
        for line in sys.stdin:
            peer.send(LINE + line.removesuffix("\n").encode())
            answer = peer.recv(1 << 16)
            if not answer:
                os._exit(
                    0 if line.split()[:1] == ["quit"] else 1
                )  # what is not printed yet is lost
            print(answer.removeprefix(LINE).decode(), end="")
    return 0


def _connect(peer: socket.socket, place: MpsDirectories) -> None:
    try:
        peer.connect(str(place.privileged))
    except PermissionError:
        peer.connect(str(place.control))
        peer.send(COMMANDS)


def _refuse(words: str, stream: TextIO | None = None) -> int:
    print(words, file=stream, flush=True)
    return 1
