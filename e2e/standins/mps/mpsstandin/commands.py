"""The commands of the control program, as NVIDIA's manual lists them.

Answers of commands that set something are empty; what the real one would refuse is refused here
with a sentence. Limits are kept and reported, and enforce nothing: there is no GPU.
"""

import re
from collections.abc import Callable

from mpsstandin.servers import Servers

MOST_PERCENT = 100
_LIMIT = re.compile(r"\d+[GM]")


class CommandRefusal(Exception):  # noqa: N818 - an answer of the daemon, not a failure
    """The daemon does not do this; the message is its answer."""


class Commands:
    """What one daemon answers.

    Attributes:
        quits: it was instructed to end.
    """

    def __init__(self, servers: Servers, device: str) -> None:
        self._servers = servers
        self._device = device
        self._percent = 100.0
        self._limits: dict[str, str] = {}
        self.quits = False

    def execute(self, line: str) -> str:
        """The answer to one line; empty where there is nothing to say."""
        name, *words = line.split() or [""]
        known: dict[str, Callable[..., str]] = {
            "get_server_list": self._server_list,
            "start_server": self._start_server,
            "get_server_status": self._server_status,
            "get_client_list": self._client_list,
            "get_device_client_list": self._device_client_list,
            "ps": self._ps,
            "terminate_client": self._terminate_client,
            "get_default_active_thread_percentage": lambda: f"{self._percent:.1f}",
            "set_default_active_thread_percentage": self._set_percent,
            "get_default_device_pinned_mem_limit": self._limit,
            "set_default_device_pinned_mem_limit": self._set_limit,
            "quit": self._quit,
        }
        if name not in known:
            return f"Unrecognized command: {name}" if name else ""
        try:
            return known[name](*words)
        except TypeError:
            return f"Wrong number of arguments: {line.strip()}"
        except CommandRefusal as refusal:
            return str(refusal)

    def _server_list(self) -> str:
        return "\n".join(map(str, self._servers.pids()))

    def _start_server(self, option: str, user: str) -> str:
        if option != "-uid" or not user.isdecimal():
            raise CommandRefusal("usage: start_server -uid <user id>")
        self._servers.start(int(user))
        return ""

    def _server_status(self, pid: str) -> str:
        self._server(pid)
        return "ACTIVE"

    def _server(self, pid: str) -> int:
        if not pid.isdecimal() or int(pid) not in self._servers.pids():
            raise CommandRefusal(f"Server {pid} not found")
        return int(pid)

    def _client_list(self, server: str) -> str:
        return "\n".join(map(str, self._servers.clients(self._server(server))))

    def _device_client_list(self, server: str = "") -> str:
        servers = [self._server(server)] if server else self._servers.pids()
        clients = [str(pid) for each in servers for pid in self._servers.clients(each)]
        return "\n".join([self._device, *clients]) if clients else ""

    def _ps(self) -> str:
        rows = [
            f"{client} 1 {server} {self._device} ACTIVE"
            for server in self._servers.pids()
            for client in self._servers.clients(server)
        ]
        return "\n".join(["PID ID SERVER DEVICE STATE", *rows])

    def _terminate_client(self, server: str, client: str) -> str:
        clients = self._servers.clients(self._server(server))
        if not client.isdecimal() or int(client) not in clients:
            raise CommandRefusal(f"Client {client} not found")
        self._servers.leave(int(client))
        return ""

    def _set_percent(self, text: str) -> str:
        try:
            percent = float(text)
        except ValueError:
            percent = 0.0
        if not 0 < percent <= MOST_PERCENT:
            raise CommandRefusal(f"Invalid percentage: {text}")
        self._percent = percent
        return ""

    def _limit(self, device: str) -> str:
        return self._limits.get(device, "")

    def _set_limit(self, device: str, value: str) -> str:
        if not _LIMIT.fullmatch(value):
            raise CommandRefusal(f"Invalid limit: {value}")
        self._limits[device] = value
        return ""

    def _quit(self, option: str = "", seconds: str = "0") -> str:
        if option not in {"", "-t"} or not seconds.isdecimal():
            raise CommandRefusal("usage: quit [-t TIMEOUT]")
        self.quits = True
        return ""
