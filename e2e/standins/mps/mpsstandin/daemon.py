"""The daemon: its files, its two sockets, and one loop over whoever speaks on them.

On `control` a client of any user sends `client`, is given a server, and keeps the connection for as
long as it lives. On `control_privileged`, and by any user on `control` after the word `commands`,
the control program sends a line a message. NVIDIA's daemon takes commands of any user too.
"""

import fcntl
import os
import selectors
import signal
import socket
import struct
from collections.abc import Callable
from contextlib import suppress

from mpsstandin import faults
from mpsstandin.commands import Commands
from mpsstandin.log import DaemonLog
from mpsstandin.place import MpsDirectories
from mpsstandin.servers import Servers

CLIENT = b"client"
COMMANDS = b"commands"
LINE = b">"
"""Before every command and every answer, since an empty message is the end of a connection."""
_CREDENTIALS = struct.Struct("3i")


class StartError(Exception):
    """The daemon cannot start; the message is what it prints."""


class StandInDaemon:
    """One daemon, from its start to its end."""

    def __init__(self, place: MpsDirectories, log: DaemonLog, *, multi_user: bool) -> None:
        self._place = place
        self._log = log
        self._selector = selectors.DefaultSelector()
        self._servers = Servers(multi_user=multi_user)
        self._clients: dict[socket.socket, int] = {}
        self._waiting: list[tuple[socket.socket, int, int]] = []
        self._lock = self._locked()

    def _locked(self) -> int:
        with suppress(OSError):
            self._place.pipe.mkdir()
            self._place.pipe.chmod(0o777)
        try:
            lock = os.open(self._place.lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        except OSError as error:
            raise StartError(f"Cannot access CUDA_MPS_PIPE_DIRECTORY={self._place.pipe}") from error
        try:
            fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(lock)
            raise StartError("An instance of this daemon is already running") from error
        with suppress(PermissionError):
            os.chmod(self._place.lock, 0o666)  # noqa: PTH101 - the mode of the real one
        return lock

    def serve(self, listening: Callable[[], None]) -> None:
        """Until instructed to quit; ``listening`` is called once it takes connections."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._end_requested)
        with suppress(FileExistsError):
            os.mkfifo(self._place.fifo)
        self._place.fifo.chmod(0o777)
        self._listen(self._place.control, 0o666, self._new_peer)
        self._listen(self._place.privileged, 0o755, self._new_commands)
        self._log.write(
            f"Starting control daemon using socket {self._place.control}\n"
            "To connect CUDA applications to this daemon, set env "
            f"CUDA_MPS_PIPE_DIRECTORY={self._place.pipe}"
        )
        self._commands = Commands(
            self._servers,
            os.environ.get("CUDA_VISIBLE_DEVICES", "0"),
            percent=os.environ.get("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", ""),
            old="old" in faults.words(self._place.pipe),
        )
        self._log.write(self._commands.complaint)
        with suppress(PermissionError):
            self._place.pid.write_text(f"{os.getpid()}\n")
        listening()
        while not self._commands.quits:
            for key, _ in self._selector.select():
                key.data(key.fileobj)
        self._end()

    def _end_requested(self, number: int, _: object) -> None:
        if "deaf" not in faults.words(self._place.pipe):
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)

    def _end(self) -> None:
        """Sockets and lock stay, as with NVIDIA's daemon."""
        self._servers.end()
        self._log.write("Exit with status 0")
        for left in (self._place.fifo, self._place.pid):
            left.unlink(missing_ok=True)

    def _listen(self, path: os.PathLike[str], mode: int, accept: object) -> None:
        with suppress(FileNotFoundError):
            os.unlink(path)  # noqa: PTH108
        server = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        server.bind(str(path))
        os.chmod(path, mode)  # noqa: PTH101
        server.listen(64)
        self._selector.register(server, selectors.EVENT_READ, accept)

    def _new_commands(self, server: socket.socket) -> None:
        self._log.write("Accepting connection...")
        self._take_commands(server.accept()[0])

    def _take_commands(self, peer: socket.socket) -> None:
        self._log.write("NEW UI")
        self._follow(peer, self._command)

    def _command(self, peer: socket.socket) -> None:
        message = _received(peer)
        if not message:
            self._log.write("UI closed")
            self._selector.unregister(peer)
            peer.close()
            return
        line = message.removeprefix(LINE).decode()
        self._log.write(f"Cmd:{line}")
        broken = faults.words(self._place.pipe)
        if "mute" in broken or ("deaf" in broken and line.startswith("quit")):
            return
        answer = self._commands.execute(line, user=_credentials(peer)[1])
        self._log.write("\n".join(filter(None, [self._commands.complaint, answer])))
        if self._commands.quits:  # the control program waits for the end
            return
        with suppress(OSError):
            peer.send(LINE + (f"{answer}\n" if answer else "").encode())

    def _new_peer(self, server: socket.socket) -> None:
        self._log.write("Accepting connection...")
        self._follow(server.accept()[0], self._client)

    def _follow(self, peer: socket.socket, serve: Callable[[socket.socket], None]) -> None:
        with suppress(KeyError):
            self._selector.unregister(peer)
        self._selector.register(peer, selectors.EVENT_READ, serve)

    def _client(self, peer: socket.socket) -> None:
        message = _received(peer)
        if message == COMMANDS:
            self._take_commands(peer)
        elif message:
            pid, user = _credentials(peer)
            self._log.write(f"NEW CLIENT {pid} from user {user}")
            self._waiting.append((peer, pid, user))
        else:
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


def _credentials(peer: socket.socket) -> tuple[int, int]:
    """Process and user at the other end."""
    pid, user, _ = _CREDENTIALS.unpack(
        peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    )
    return pid, user


def _received(peer: socket.socket) -> bytes:
    """One message; empty when the peer has gone."""
    try:
        return peer.recv(4096)
    except OSError:
        return b""
