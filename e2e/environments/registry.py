"""Debian's docker-registry as a process of this machine, which containers reach too."""

import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import yaml

import offline
from environments.processes import ChildProcess, free_port
from host.waiting import until


@contextmanager
def running(folder: Path, listen: str = "127.0.0.1") -> Iterator[str]:
    """An empty registry; its address on this machine.

    Args:
        folder: for its data and its log.
        listen: address that it listens on; ``0.0.0.0`` for those that come from containers.

    Raises:
        SetupError: the program cannot be had.
    """
    program = offline.ensure_registry()
    port = free_port()
    config = {
        "version": 0.1,
        "storage": {"filesystem": {"rootdirectory": str(folder / "data")}},
        "http": {"addr": f"{listen}:{port}"},
    }
    (folder / "config.yml").write_text(yaml.safe_dump(config))
    argv: list[str | Path] = [program, "serve", folder / "config.yml"]
    process = ChildProcess("registry", argv, folder=folder)
    address = f"127.0.0.1:{port}"
    try:
        until("the registry answers", lambda: _answers(process, address), seconds=60)
        yield address
    finally:
        process.stop()


def _answers(process: ChildProcess, address: str) -> bool:
    process.demand_alive()
    try:
        with urllib.request.urlopen(f"http://{address}/v2/", timeout=5) as reply:
            return bool(reply.status == 200)
    except OSError:
        return False
