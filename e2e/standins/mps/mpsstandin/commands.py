"""The commands of the control program, with the answers of NVIDIA's program of driver 535.

A test runs both programs and compares them. What the daemon refuses is in its log and often not in
its answer. Limits are kept and reported, and enforce nothing: there is no GPU.
"""

import os
from collections.abc import Callable

from mpsstandin import numbers
from mpsstandin.servers import Servers

MOST_PERCENT = 100
DEVICES = 32
_HEAD = f"{'PID':10}{'ID':10}{'SERVER':15}{'DEVICE':46}{'NAMESPACE':15}{'COMMAND':15}"


class CommandRefusal(Exception):  # noqa: N818 - an answer of the daemon, not a failure
    """The daemon does not do this; the message is its answer."""


class Commands:
    """What one daemon answers.

    Attributes:
        quits: it was instructed to end.
        complaint: what the last command made the daemon log without answering it.
    """

    def __init__(self, servers: Servers, device: str, *, percent: str = "", old: bool) -> None:
        self._servers = servers
        self._device = device
        self._percent = 100.0
        self._limits: dict[int, int] = {}
        self._priority = 0
        self.quits = False
        self.complaint = ""
        self._old = old
        if percent:
            self._set_percent(percent, complaint="CUDA_MPS_ACTIVE_THREAD_PERCENTAGE should be")

    def execute(self, line: str, *, user: int) -> str:
        """The answer to one line of a user; empty where there is nothing to say."""
        self.complaint = ""
        name, *words = line.split() or [""]
        known: dict[str, Callable[[list[str]], str]] = {
            "get_server_list": lambda _: "\n".join(map(str, self._servers.pids())),
            "start_server": lambda rest: self._start_server(rest, user),
            "shutdown_server": self._shutdown_server,
            "get_client_list": self._client_list,
            "get_device_client_list": self._device_client_list,
            "ps": self._ps,
            "terminate_client": self._terminate_client,
            "get_default_active_thread_percentage": lambda _: f"{self._percent:.1f}",
            "set_default_active_thread_percentage": lambda rest: self._set_percent(_first(rest)),
            "get_default_device_pinned_mem_limit": self._limit,
            "set_default_device_pinned_mem_limit": lambda _: self._set_limit(line.lstrip(), name),
            "get_default_client_priority": lambda _: str(self._priority),
            "set_default_client_priority": self._set_priority,
            "quit": lambda rest: self._quit(rest, user),
        }
        if not self._old:
            known["get_server_status"] = self._server_status
        if name not in known:
            return f'Unknown command "{name}"'
        try:
            return known[name](words)
        except CommandRefusal as refusal:
            return str(refusal)

    def _start_server(self, words: list[str], user: int) -> str:
        if len(words) < 2 or words[0] != "-uid" or not words[1].isdecimal():
            raise CommandRefusal("A user id (UID) is required to start a new server")
        if user not in {os.geteuid(), int(words[1])}:
            raise CommandRefusal(f"Insufficient privileges for UID {user}")
        self._servers.start(int(words[1]))
        return ""

    def _server(self, words: list[str]) -> int:
        pid = numbers.whole(_first(words))
        if pid not in self._servers.pids():
            raise CommandRefusal(f"Server {pid} not found")
        return pid

    def _server_status(self, words: list[str]) -> str:
        self._server(words)
        return "ACTIVE"

    def _shutdown_server(self, words: list[str]) -> str:
        self._server(words)
        self._servers.end()
        return ""

    def _client_list(self, words: list[str]) -> str:
        return "\n".join(map(str, self._servers.clients(self._server(words))))

    def _device_client_list(self, words: list[str]) -> str:
        servers = [self._server(words)] if words else self._servers.pids()
        clients = [str(pid) for each in servers for pid in self._servers.clients(each)]
        return "\n".join([self._device, *clients]) if clients else ""

    def _ps(self, words: list[str]) -> str:
        servers = self._servers.pids()
        if words[:1] == ["-p"]:
            pid = numbers.whole(_first(words[1:]))
            if pid not in servers:
                raise CommandRefusal(f"Server {pid} not found\nServer {pid} not found\n")
            servers = [pid]
        if not servers:
            raise CommandRefusal("Server not found")
        rows = [
            f"{client:<10}{1:<10}{server:<15}{self._device:46}{'-':15}{'-':15}"
            for server in servers
            for client in self._servers.clients(server)
        ]
        return "\n".join([_HEAD, *rows])

    def _terminate_client(self, words: list[str]) -> str:
        server, client = numbers.whole(_first(words)), numbers.whole(_first(words[1:]))
        if server not in self._servers.pids():
            raise CommandRefusal(f"Server {server} not found\nServer {server} not found!\n1")
        if client not in self._servers.clients(server):
            raise CommandRefusal(f"Invalid process {client}!")
        self._servers.leave(client)
        return ""

    def _set_percent(self, text: str, *, complaint: str = "Invalid percentage, expected") -> str:
        percent = numbers.decimal(text)
        if 0 < percent <= MOST_PERCENT:
            self._percent = percent
        else:
            self.complaint = f"{complaint} between (0.0, 100.0]"
        return f"{self._percent:.1f}"

    def _limit(self, words: list[str]) -> str:
        device = numbers.whole(_first(words))
        if not self._addressed(device):
            return ""
        if device not in self._limits:
            self.complaint = "No default pinned memory limit set for the device!"
            return ""
        return numbers.size(self._limits[device])

    def _set_limit(self, line: str, name: str) -> str:
        device, mib = numbers.limit(line.removeprefix(name))
        if self._addressed(device):
            self._limits.pop(device, None)
            if mib:
                self._limits[device] = mib
        return ""

    def _addressed(self, device: int) -> bool:
        if 0 <= device < DEVICES:
            return True
        self.complaint = "Invalid device ordinal!"
        return False

    def _set_priority(self, words: list[str]) -> str:
        priority = numbers.whole(_first(words))
        if priority not in {0, 1}:
            raise CommandRefusal("Invalid priority value - must be 0 or 1!")
        self._priority = priority
        return ""

    def _quit(self, words: list[str], user: int) -> str:
        if user != os.geteuid():
            raise CommandRefusal("Not enough privilege to execute quit command")
        self.quits = True
        if words[:1] == ["-t"] and len(words) > 1:
            self.complaint = f"quit command issued with timeout of {numbers.whole(words[1])}"
        return ""


def _first(words: list[str]) -> str:
    return words[0] if words else ""
