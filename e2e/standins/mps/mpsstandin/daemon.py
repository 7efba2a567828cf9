"""The daemon: its files, its two sockets, and one loop over whoever speaks on them.

On `control` a client of any user sends `client`, is given a server, and keeps the connection for as
long as it lives. On `control_privileged` the control program sends a line a message.
"""

import fcntl
import os
import selectors
import signal
import socket
import struct
import time
from contextlib import suppress
from pathlib import Path

from mpsstandin import faults
from mpsstandin.commands import Commands
from mpsstandin.place import MpsDirectories
from mpsstandin.servers import Servers

CLIENT = b"client"
_CREDENTIALS = struct.Struct("3i")


class RunningError(Exception):
    """Another daemon has these pipes."""


class StandInDaemon:
    """One daemon, from its start to its end."""

    def __init__(self, place: MpsDirectories, *, multi_user: bool) -> None:
        self._place = place
        self._selector = selectors.DefaultSelector()
        self._servers = Servers(multi_user=multi_user)
        self._commands = Commands(self._servers, os.environ.get("CUDA_VISIBLE_DEVICES", "0"))
        self._clients: dict[socket.socket, int] = {}
        self._waiting: list[tuple[socket.socket, int, int]] = []
        self._lock = self._locked()
        self._log = (place.log / "control.log").open("a", buffering=1)

    def _locked(self) -> int:
        self._place.pipe.mkdir(parents=True, exist_ok=True)
        self._place.log.mkdir(parents=True, exist_ok=True)
        lock = os.open(self._place.lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(lock)
            raise RunningError("An instance of this daemon is already running") from error
        os.chmod(self._place.lock, 0o666)  # noqa: PTH101 - the mode of the real one
        return lock

    def serve(self) -> None:
        """Until instructed to quit."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._end_requested)
        with suppress(FileExistsError):
            os.mkfifo(self._place.fifo)
        self._place.fifo.chmod(0o777)
        self._listen(self._place.control, 0o666, self._new_client)
        self._listen(self._place.privileged, 0o755, self._new_user)
        self._place.pid.write_text(f"{os.getpid()}\n")
        self._say(f"Starting control daemon using socket {self._place.control}")
        while not self._commands.quits:
            for key, _ in self._selector.select():
                key.data(key.fileobj)
        self._end()

    def _end_requested(self, *_: object) -> None:
        if "deaf" not in faults.words(self._place.pipe):
            self._end()
            os._exit(0)

    def _end(self) -> None:
        self._servers.end()
        self._say("Exit")
        for left in (
            self._place.control,
            self._place.privileged,
            self._place.fifo,
            self._place.pid,
        ):
            left.unlink(missing_ok=True)

    def _listen(self, path: Path, mode: int, accept: object) -> None:
        path.unlink(missing_ok=True)
        server = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        server.bind(str(path))
        path.chmod(mode)
        server.listen(64)
        self._selector.register(server, selectors.EVENT_READ, accept)

    def _new_user(self, server: socket.socket) -> None:
        self._say("NEW UI")
        self._selector.register(server.accept()[0], selectors.EVENT_READ, self._command)

    def _command(self, peer: socket.socket) -> None:
        line = _received(peer)
        if not line:
            self._selector.unregister(peer)
            peer.close()
            return
        self._say(f"Cmd:{line.decode()}")
        broken = faults.words(self._place.pipe)
        if "mute" in broken or ("deaf" in broken and line.startswith(b"quit")):
            return
        with suppress(OSError):
            peer.send(self._commands.execute(line.decode()).encode() + b"\n")

    def _new_client(self, server: socket.socket) -> None:
        peer = server.accept()[0]
        pid, user, _ = _CREDENTIALS.unpack(
            peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        )
        self._say(f"NEW CLIENT {pid} from user {user}")
        self._selector.register(peer, selectors.EVENT_READ, self._client)
        self._waiting.append((peer, pid, user))

    def _client(self, peer: socket.socket) -> None:
        if not _received(peer):
            self._selector.unregister(peer)
            self._waiting = [each for each in self._waiting if each[0] is not peer]
            self._servers.leave(self._clients.pop(peer, 0))
            peer.close()
        self._serve_waiting()

    def _serve_waiting(self) -> None:
        """In order of arrival, as far as the users that are served allow."""
        while self._waiting:
            peer, pid, user = self._waiting[0]
            server = self._servers.connect(pid, user)
            if server is None:
                return
            self._waiting.pop(0)
            self._clients[peer] = pid
            with suppress(OSError):
                peer.send(f"server {server}\n".encode())

    def _say(self, words: str) -> None:
        stamp = time.strftime("%Y-%m-%d %H:%M:%S")
        self._log.write(f"[{stamp} Control {os.getpid():5}] {words}\n")


def _received(peer: socket.socket) -> bytes:
    """One message; empty when the peer has gone."""
    try:
        return peer.recv(4096)
    except OSError:
        return b""
