"""The container statuses that kubelet writes, in a line of a watch.

Decoded apart from the pod itself: only the node's plugin reads them, and only of its own pods.
"""

from typing import Final

import msgspec

from gpucore.wire.times import unix_seconds


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


class _Pod(msgspec.Struct):
    status: ContainerStatuses | None = None


class _Line(msgspec.Struct):
    object: _Pod


_POD: Final = msgspec.json.Decoder(_Pod)
_LINE: Final = msgspec.json.Decoder(_Line)


def container_statuses(line: bytes) -> ContainerStatuses:
    """The statuses of the pod in one line of a watch; none for other bytes."""
    try:
        return _LINE.decode(line).object.status or ContainerStatuses()
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return ContainerStatuses()


def last_end(raw: bytes | msgspec.Raw) -> float:
    """Unix seconds at which the last container of a pod ended; 0 where none has, or one runs."""
    try:
        boxes = (_POD.decode(raw).status or ContainerStatuses()).containers
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return 0.0
    ends = [box.state.terminated for box in boxes if box.state and box.state.terminated]
    if len(ends) < len(boxes):
        return 0.0
    return max((unix_seconds(end.finished_at) for end in ends), default=0.0)
