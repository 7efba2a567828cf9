"""The command line: `-d` and `-f` start a daemon, nothing sends commands from stdin to one."""

import os
import socket
import sys
from collections.abc import Sequence

from mpsstandin import faults
from mpsstandin.daemon import RunningError, StandInDaemon
from mpsstandin.place import MpsDirectories

VERSION = "CUDA MPS Control stand-in (no GPU is behind it)"
_START = frozenset({"-d", "-f"})
_MULTI_USER = frozenset({"-M", "-multiuser-server", "--multiuser-server"})


def main(arguments: Sequence[str]) -> int:
    """Run; the exit status is that of the real program."""
    place, words = MpsDirectories.of_environment(), set(arguments)
    if words == {"-v"}:
        print(VERSION)
        return 0
    if not words:
        return _commands(place)
    broken = faults.words(place.pipe)
    known = _START if "old" in broken else _START | _MULTI_USER
    if not words <= known or len(words & _START) != 1:
        return _refuse(f"nvidia-cuda-mps-control: unknown option in {' '.join(arguments)}")
    if "crash" in broken:
        return _refuse("Failed to start: a fault was requested")
    return _daemon(place, multi_user=bool(words & _MULTI_USER), background="-d" in words)


def _daemon(place: MpsDirectories, *, multi_user: bool, background: bool) -> int:
    if background and os.fork():
        return 0
    if background:
        os.setsid()
        nothing = os.open(os.devnull, os.O_RDWR)
        for standard in range(3):
            os.dup2(nothing, standard)
    try:
        StandInDaemon(place, multi_user=multi_user).serve()
    except RunningError as error:
        return _refuse(str(error))
    return 0


def _commands(place: MpsDirectories) -> int:
    """Each line of stdin is a command; the daemon's answers go to stdout."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as peer:
        try:
            peer.connect(str(place.privileged))
        except OSError:
            return _refuse("Cannot find MPS control daemon process")
        for line in sys.stdin:
            if line.strip():
                peer.send(line.strip().encode())
                answer = peer.recv(1 << 16).decode()
                if not answer:
                    return _refuse("The MPS control daemon has gone")
                print(answer, end="", flush=True)
    return 0


def _refuse(words: str) -> int:
    print(words, file=sys.stderr, flush=True)
    return 1
