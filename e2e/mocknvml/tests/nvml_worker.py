"""Calls the real pynvml on behalf of tests, each in a process of its own.

LD_LIBRARY_PATH counts only when a process starts, so a test cannot load the library itself. One
process imports pynvml, which takes long, and forks a worker for each order that comes through the
socket on its stdin: variables as JSON, and the worker's stdin, stdout and stderr. For a worker each
line on stdin is a call, each line on stdout its outcome. Handles stay here; tests see numbers.
"""

import ctypes
import json
import os
import signal
import socket
import sys
from typing import Any

import pynvml

HANDLE_TYPES = (pynvml.c_nvmlDevice_t, pynvml.c_nvmlEventSet_t)


class NvmlWorker:
    """The handles given out so far, and the calls made with them."""

    def __init__(self) -> None:
        self._handles: list[Any] = []

    def answer(self, call: dict[str, Any]) -> dict[str, Any]:
        """Return `{"value": ...}`, or `{"error": "<class of pynvml's exception>", "text": ...}`.

        An argument `{"struct": NAME}` is a fresh struct of pynvml for the library to fill; the
        reply then has it as `"filled"`. With `"fields"` it has these values, and is handed to a
        function of pynvml that takes the address itself.
        """
        structs = [self._struct(item) for item in call["arguments"]]
        arguments = [
            self._argument(item) if struct is None else self._passed(item, struct)
            for item, struct in zip(call["arguments"], structs, strict=True)
        ]
        try:
            reply = {"value": self._plain(getattr(pynvml, call["function"])(*arguments))}
        except pynvml.NVMLError as error:
            return {"error": type(error).__name__, "text": str(error)}
        for struct in structs:
            if struct is not None:
                reply["filled"] = self._plain(struct)
        return reply

    @staticmethod
    def _struct(item: Any) -> Any:
        """Return an empty struct where a test requests one, with the version it requests."""
        if not isinstance(item, dict) or "struct" not in item:
            return None
        struct = getattr(pynvml, item["struct"])()
        if "version" in item:
            struct.version = item["version"]
        return struct

    @staticmethod
    def _passed(item: dict[str, Any], struct: Any) -> Any:
        """Return the struct, filled as the test specifies, or else its address."""
        if "fields" not in item:
            return ctypes.byref(struct)
        for name, value in item["fields"].items():
            setattr(struct, name, value.encode() if isinstance(value, str) else value)
        return struct

    def _argument(self, item: Any) -> Any:
        """Return the handle behind a number, and anything else as it is."""
        return self._handles[item["handle"]] if isinstance(item, dict) else item

    def _plain(self, value: Any) -> Any:
        """Return pynvml's value as JSON can carry it."""
        if isinstance(value, HANDLE_TYPES):
            self._handles.append(value)
            return {"handle": len(self._handles) - 1}
        if isinstance(value, ctypes.Structure | ctypes.Union):
            return {name: self._plain(getattr(value, name)) for name, *_ in value._fields_}
        if isinstance(value, pynvml.nvmlFriendlyObject):
            return {name: self._plain(item) for name, item in vars(value).items()}
        if isinstance(value, ctypes._SimpleCData):
            return value.value
        if isinstance(value, list | tuple | ctypes.Array):
            return [self._plain(item) for item in value]
        return value.decode() if isinstance(value, bytes) else value


ORDER_BYTES = 65536


def work() -> None:
    """Serve until stdin ends."""
    worker = NvmlWorker()
    for line in sys.stdin:
        print(json.dumps(worker.answer(json.loads(line))), flush=True)


def main() -> None:
    """Start a worker for each order, and tell its process id; end with the socket."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # workers that have ended are waited for by none
    orders = socket.socket(fileno=os.dup(sys.stdin.fileno()))
    while True:
        order, streams, _, _ = socket.recv_fds(orders, ORDER_BYTES, 3)
        if not order:
            return
        pid = os.fork()
        if not pid:
            for target, stream in enumerate(streams):
                os.dup2(stream, target)
        for stream in streams:
            os.close(stream)
        if not pid:
            orders.close()
            os.environ.update(json.loads(order))
            work()
            return
        orders.send(str(pid).encode())


if __name__ == "__main__":
    main()
