"""Read what a machine has: /proc, the engine's clusters, free disk, and who listens where."""

import json
import os
import resource
import shutil
import socket
import time
from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime
from pathlib import Path

from host import cachedir
from host.commands import run_command
from host.errors import SetupError
from preflight.checks import UNLIMITED, Cluster, Machine

_CLUSTER_LABEL = "io.x-k8s.kind.cluster"
_ENGINE_DISK = Path("/var/lib/docker")
DASHBOARD_PORT = 8080


def read(proc: Path = Path("/proc")) -> Machine:
    """The machine as it is now."""
    system = proc / "sys" / "fs"
    files_open, _, file_max = (system / "file-nr").read_text().split()
    memory = _memory(proc / "meminfo")
    cache = cachedir.root()
    return Machine(
        inotify_instances=int((system / "inotify" / "max_user_instances").read_text()),
        instances_used=_instances_of_root(proc),
        inotify_watches=int((system / "inotify" / "max_user_watches").read_text()),
        open_files=_hard_limit(),
        file_max=int(file_max),
        files_open=int(files_open),
        memory_available=memory["MemAvailable"],
        swap_used=memory["SwapTotal"] - memory["SwapFree"],
        engine_disk_free=_free(_ENGINE_DISK),
        cache_disk_free=_free(cache),
        cold=not any(cache.glob("kubernetes-*")),
        clusters=tuple(_clusters()),
        ports=((DASHBOARD_PORT, _listening(DASHBOARD_PORT)),),
    )


def _memory(file: Path) -> dict[str, int]:
    """Names of /proc/meminfo -> bytes."""
    lines = (line.split() for line in file.read_text().splitlines())
    return {name.rstrip(":"): int(value) * 1024 for name, value, *_ in lines}


def _hard_limit() -> int:
    """Docker and containerd raise their own limit up to the hard one."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    return UNLIMITED if hard == resource.RLIM_INFINITY else hard


def _instances_of_root(proc: Path) -> int | None:
    """The user whose limit nodes share is root, and only root can look into its programs."""
    if os.geteuid() != 0:
        return None
    return sum(1 for link in _open_files_of_root(proc) if link == "anon_inode:inotify")


def _open_files_of_root(proc: Path) -> Iterator[str]:
    for folder in proc.glob("[0-9]*"):
        with suppress(OSError):  # it ended meanwhile
            if folder.stat().st_uid != 0:
                continue
            for link in (folder / "fd").iterdir():
                with suppress(OSError):
                    yield str(link.readlink())


def _free(folder: Path) -> int:
    """Bytes free on the disk of a folder, or of the nearest one above it that exists."""
    while not folder.exists():
        folder = folder.parent
    return shutil.disk_usage(folder).free


def _clusters() -> list[Cluster]:
    """Clusters of kind on the engine; none where no engine answers yet."""
    listed = ["docker", "ps", "--all", "--quiet", "--filter", f"label={_CLUSTER_LABEL}"]
    try:
        ids = run_command(listed, timeout_s=20).split()
        nodes = json.loads(run_command(["docker", "inspect", *ids], timeout_s=30)) if ids else []
    except SetupError:
        return []
    by_name: dict[str, list[dict[str, object]]] = {}
    for node in nodes:
        by_name.setdefault(node["Config"]["Labels"][_CLUSTER_LABEL], []).append(node)
    return [_cluster(name, found) for name, found in sorted(by_name.items())]


def _cluster(name: str, nodes: list[dict[str, object]]) -> Cluster:
    created = min(datetime.fromisoformat(str(node["Created"])).timestamp() for node in nodes)
    running = sum(bool(node["State"]["Running"]) for node in nodes)  # type: ignore[index]
    hours = (time.time() - created) / 3600
    return Cluster(name, nodes=len(nodes), running=running, age_hours=hours)


def _listening(port: int) -> bool:
    with socket.socket() as client:
        client.settimeout(1)
        return client.connect_ex(("127.0.0.1", port)) == 0
