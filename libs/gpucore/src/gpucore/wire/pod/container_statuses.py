"""Container statuses that kubelet writes, in a line of a watch: restarts, and ends for memory.

Decoded apart from the pod itself: only the node's plugin reads them, and only of its own pods.

Containers that ended because GPU memory ran out are known by the last words of their programs. The
status has these where the pod sets ``terminationMessagePolicy: FallbackToLogsOnError``, or where
the program writes a termination message. The reason ``OOMKilled`` is about host memory and does not
count.
"""

from typing import Final

import msgspec

from gpucore.units import PodUid
from gpucore.wire.errors import WireError, decoded
from gpucore.wire.quantity import unix_seconds

HOST_MEMORY: Final = "OOMKilled"
WORDS: Final = (
    "cuda out of memory",
    "cuda error: out of memory",
    "cuda_error_out_of_memory",
    "cudaerrormemoryallocation",
    "cudamalloc failed: out of memory",
    "torch.outofmemoryerror",
    "resource_exhausted: out of memory",
)
"""In lower case: of PyTorch, the driver, the CUDA runtime, llama.cpp and XLA."""


class StateDetails(msgspec.Struct, rename="camel"):
    """What a state of a container has, in any of its three forms."""

    reason: str = ""
    message: str = ""
    exit_code: int = 0
    started_at: str | None = None
    finished_at: str | None = None


class ReportedState(msgspec.Struct):
    """A state of a container as kubelet reports it; one of the three is set."""

    waiting: StateDetails | None = None
    running: StateDetails | None = None
    terminated: StateDetails | None = None


class ReportedContainer(msgspec.Struct, rename="camel"):
    """The status of a container: its state now, and how it ended last."""

    name: str = ""
    ready: bool = False
    restart_count: int = 0
    state: ReportedState | None = None
    last_state: ReportedState | None = None


class ContainerStatuses(msgspec.Struct, rename="camel"):
    """Those of a pod; sidecars are init containers."""

    container_statuses: list[ReportedContainer] | None = None
    init_container_statuses: list[ReportedContainer] | None = None

    @property
    def containers(self) -> list[ReportedContainer]:
        """The status of each container that is no init container."""
        return self.container_statuses or []

    @property
    def all(self) -> list[ReportedContainer]:
        """The status of each init container, then of each other one."""
        return [*(self.init_container_statuses or ()), *self.containers]


class _Metadata(msgspec.Struct):
    uid: str = ""


class _Pod(msgspec.Struct):
    metadata: _Metadata = msgspec.field(default_factory=_Metadata)
    status: ContainerStatuses | None = None


class _Line(msgspec.Struct):
    object: _Pod


class _List(msgspec.Struct):
    items: list[_Pod] | None = None


_POD: Final = msgspec.json.Decoder(_Pod)
_LINE: Final = msgspec.json.Decoder(_Line)
_LIST: Final = msgspec.json.Decoder(_List)


def container_statuses(line: bytes) -> ContainerStatuses:
    """The statuses of the pod in one line of a watch; none for other bytes."""
    try:
        return decoded(_LINE, line, "no event").object.status or ContainerStatuses()
    except WireError:
        return ContainerStatuses()


def container_statuses_of_list(page: bytes) -> dict[PodUid, ContainerStatuses]:
    """The statuses of the pods in a page of a list, by UID; none for other bytes."""
    try:
        pods = decoded(_LIST, page, "no list").items or ()
    except WireError:
        return {}
    return {PodUid(pod.metadata.uid): pod.status or ContainerStatuses() for pod in pods}


def last_end(raw: bytes | msgspec.Raw) -> float:
    """Unix seconds at which the last container of a pod ended; 0 where none has, or one runs."""
    try:
        boxes = (decoded(_POD, raw, "no pod").status or ContainerStatuses()).containers
    except WireError:
        return 0.0
    ends = [box.state.terminated for box in boxes if box.state and box.state.terminated]
    if len(ends) < len(boxes):
        return 0.0
    return max((unix_seconds(end.finished_at) for end in ends), default=0.0)


class ContainerEvent(msgspec.Struct, frozen=True, order=True):
    """The last start of a container that ran before, or its end because GPU memory ran out.

    Attributes:
        at: Unix seconds.
        container: its name.
    """

    at: float
    container: str


def container_restarts(line: bytes) -> list[ContainerEvent]:
    """The restarts of running containers in a line of a watch, oldest first; none for other bytes.

    A sidecar is an init container that keeps running.
    """
    found = (
        ContainerEvent(unix_seconds(box.state.running.started_at), box.name)
        for box in container_statuses(line).all
        if box.restart_count and box.state and box.state.running
    )
    return sorted(each for each in found if each.at)


def memory_failures(line: bytes) -> list[ContainerEvent]:
    """The failures in a line of a watch, oldest first; none for other bytes."""
    ends = (
        ContainerEvent(unix_seconds(state.terminated.finished_at), box.name)
        for box in container_statuses(line).containers
        for state in (box.last_state, box.state)
        if state and state.terminated and _ran_out(state.terminated)
    )
    return sorted(end for end in ends if end.at)


def _ran_out(end: StateDetails) -> bool:
    if not end.exit_code or end.reason == HOST_MEMORY:
        return False
    words = end.message.lower()
    return any(each in words for each in WORDS)
