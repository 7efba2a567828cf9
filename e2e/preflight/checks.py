"""What nodes need of the machine, as rows: what it has, what is needed, what to type. No I/O.

The figures per node were measured with this stack on Kubernetes 1.37: a node takes 18 inotify
instances of root, 300 watches and 0.4 to 0.6 GiB of memory. A first build takes 9 GiB in the cache
folder and 12 GiB of Docker's disk.
"""

from dataclasses import dataclass
from enum import StrEnum

GIB = 1024**3
UNLIMITED = 2**40

INSTANCES_PER_NODE = 20
SPARE_INSTANCES = 16
"""A node that restarts opens the new ones before all old ones are closed."""
WATCHES_PER_NODE = 4096
OPEN_FILES = 8192
FILES_PER_NODE = 10_000
MEMORY_PER_NODE = int(0.75 * GIB)
DISK_PER_NODE = GIB
DISK_OF_BUILD = 22 * GIB
"""Compilers, modules, node images and service images, the first time, where all lie on one disk."""
RAISED_INSTANCES = 1024
RAISED_WATCHES = 524_288
STALE_HOURS = 6


class Outcome(StrEnum):
    """Of one check."""

    PASS = "ok"
    RAISE = "too low"
    """A kernel parameter that root can raise."""
    FAIL = "FAIL"
    WARN = "warning"


@dataclass(frozen=True)
class Cluster:
    """A kind cluster on the engine."""

    name: str
    nodes: int
    running: int
    age_hours: float


@dataclass(frozen=True)
class Machine:
    """Readings of the machine; sizes in bytes.

    Attributes:
        instances_used: inotify instances of root now; None where only root could count them.
        cold: nothing was built yet, so that compilers and modules are still to be fetched.
        ports: each with whether something listens on it.
    """

    inotify_instances: int
    instances_used: int | None
    inotify_watches: int
    open_files: int
    file_max: int
    files_open: int
    memory_available: int
    swap_used: int
    engine_disk_free: int
    cache_disk_free: int
    cold: bool
    clusters: tuple[Cluster, ...]
    ports: tuple[tuple[int, bool], ...] = ()

    @property
    def running_nodes(self) -> int:
        """Nodes of all clusters that run now."""
        return sum(cluster.running for cluster in self.clusters)


@dataclass(frozen=True)
class Row:
    """One line of the table.

    Attributes:
        command: what to type where the outcome is not a pass; may be empty.
        parameter: of the kernel, and the value to raise it to.
    """

    check: str
    has: str
    needs: str
    outcome: Outcome
    command: str = ""
    parameter: tuple[str, int] | None = None


def rows(machine: Machine, *, nodes: int) -> list[Row]:
    """Every check, for the nodes that run and ``nodes`` that are about to be started at most."""
    everywhere = machine.running_nodes + nodes
    return [
        _parameter(
            "inotify instances",
            "fs.inotify.max_user_instances",
            has=machine.inotify_instances,
            needs=_instances(machine, nodes),
            raised=RAISED_INSTANCES,
        ),
        _parameter(
            "inotify watches",
            "fs.inotify.max_user_watches",
            has=machine.inotify_watches,
            needs=WATCHES_PER_NODE * everywhere,
            raised=RAISED_WATCHES,
        ),
        _parameter(
            "open files of all programs",
            "fs.file-max",
            has=machine.file_max,
            needs=machine.files_open + FILES_PER_NODE * nodes,
            raised=0,
        ),
        _open_files(machine),
        _size("free memory", machine.memory_available, MEMORY_PER_NODE * nodes, _FREE_MEMORY),
        *_disks(machine, nodes),
        _swap(machine),
        *(_port(port, used=used) for port, used in machine.ports),
        *map(_cluster, machine.clusters),
    ]


_FREE_MEMORY = "end other programs, or remove a cluster that you do not need (rows below)"
_FREE_DISK = "docker system prune; rm -r the cache folder's entries that you do not need"


def _instances(machine: Machine, nodes: int) -> int:
    running = INSTANCES_PER_NODE * machine.running_nodes
    used = running if machine.instances_used is None else machine.instances_used
    return used + INSTANCES_PER_NODE * nodes + SPARE_INSTANCES


def _parameter(check: str, parameter: str, *, has: int, needs: int, raised: int) -> Row:
    figures = (check, _count(has), _count(needs))
    if has >= needs:
        return Row(*figures, Outcome.PASS)
    value = max(raised, needs)
    command = f"sudo sysctl {parameter}={value}"
    return Row(*figures, Outcome.RAISE, command, (parameter, value))


def _open_files(machine: Machine) -> Row:
    has = machine.open_files
    outcome = Outcome.PASS if has >= OPEN_FILES else Outcome.FAIL
    command = "" if outcome is Outcome.PASS else f"ulimit -n {OPEN_FILES}, in the shell of make"
    figures = (_count(has), _count(OPEN_FILES))
    return Row("open files of one program", *figures, outcome, command)


def _disks(machine: Machine, nodes: int) -> list[Row]:
    build = DISK_OF_BUILD if machine.cold else 0
    engine = build + DISK_PER_NODE * nodes
    return [
        _size("free disk of Docker", machine.engine_disk_free, engine, _FREE_DISK),
        _size("free disk of the cache", machine.cache_disk_free, build + GIB, _FREE_DISK),
    ]


def _size(check: str, has: int, needs: int, command: str) -> Row:
    enough = has >= needs
    outcome = Outcome.PASS if enough else Outcome.FAIL
    return Row(check, _gib(has), _gib(needs), outcome, "" if enough else command)


def _swap(machine: Machine) -> Row:
    """Kubelet accepts swap on nodes of kind; a node that swaps is only slow."""
    if not machine.swap_used:
        return Row("swap in use", _gib(0), "none", Outcome.PASS)
    slow = "nothing to do: kubelet accepts swap here, but waits of the cases may end too early"
    return Row("swap in use", _gib(machine.swap_used), "none", Outcome.WARN, slow)


def _port(port: int, *, used: bool) -> Row:
    if not used:
        return Row(f"port {port}", "free", "free", Outcome.PASS)
    other = "gpushare dashboard --port N, with another number"
    return Row(f"port {port}", "in use", "free", Outcome.WARN, other)


def _cluster(cluster: Cluster) -> Row:
    check = f"cluster {cluster.name}"
    has = f"{cluster.running} of {cluster.nodes} nodes run, {cluster.age_hours:.0f} h old"
    remove = (
        f"docker rm -fv $(docker ps -aqf label=io.x-k8s.kind.cluster={cluster.name})"
        "  # if you do not need it"
    )
    if cluster.running < cluster.nodes:
        return Row(check, has, "all or none", Outcome.WARN, remove)
    if cluster.age_hours > STALE_HOURS:
        return Row(check, has, f"under {STALE_HOURS} h", Outcome.WARN, remove)
    return Row(check, has, "", Outcome.PASS)


def _count(number: int) -> str:
    return "unlimited" if number >= UNLIMITED else f"{number:,}"


def _gib(size: int) -> str:
    return f"{size / GIB:.1f} GiB"
