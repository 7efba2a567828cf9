"""Pods without an effective limit: by their environment, or by a process outside MPS.

Both are seen with the least privilege. To read the environment of a running process needs
CAP_SYS_PTRACE in the node's process namespace, and the container runtime's socket is root on the
node: each would be worth more to an attacker than the limit it guards. The pod's specification is
watched anyway. What it cannot show (``envFrom``, a program that unsets its variables, a volume over
the pipe directory) ends in a process that uses the GPU without the MPS daemon, and the driver
reports for every process whether it is a client of MPS.
"""

from collections.abc import Iterable, Mapping

from gpucore.units import PodUid
from gpucore.wire.errors import WireError
from gpucore.wire.names import Names
from gpucore.wire.pod.overrides import overrides
from gpucore.wire.pod.spec import Pod
from gpucore.wire.whole_requests import pod_request_of


def declared(pod: Pod, names: Names) -> dict[str, tuple[str, ...]]:
    """Variables by container that a pod with a share sets over ours; admission refuses them."""
    try:
        requests_gpus = pod_request_of(pod, names) is not None
    except WireError:
        return {}
    containers = (*pod.containers, *pod.init_containers, *pod.ephemeral_containers)
    return overrides(containers, requests_gpus=True) if requests_gpus else {}


class Unlimited:
    """Processes of one GPU with MPS that are no clients of its daemon.

    NVML lists clients and other processes one after the other, so that one process may begin or end
    in between: only what is found twice in a row counts.
    """

    def __init__(self) -> None:
        self._seen: frozenset[int] = frozenset()

    def pods(self, clients: Mapping[int, bool | None], owners: Mapping[int, PodUid]) -> set[PodUid]:
        """The pods of such processes.

        Args:
            clients: by process id, whether it is a client of MPS; ``None`` where unknown.
            owners: the pod of each process that belongs to one.
        """
        outside = frozenset(pid for pid, client in clients.items() if client is False)
        found = {owners[pid] for pid in outside & self._seen if pid in owners}
        self._seen = outside
        return found


def sentence(variables: Mapping[str, Iterable[str]]) -> str:
    """The text of the event about variables by container."""
    parts = [f"container {name} sets {', '.join(each)}" for name, each in variables.items()]
    return "; ".join(parts)
