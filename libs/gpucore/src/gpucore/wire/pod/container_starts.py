"""When kubelet started the containers of a pod again, from the pod's status."""

import msgspec

from gpucore.wire.pod.container_statuses import container_statuses
from gpucore.wire.times import unix_seconds


class ContainerRestart(msgspec.Struct, frozen=True, order=True):
    """The last start of a container that ran before.

    Attributes:
        at: Unix seconds.
        container: its name.
    """

    at: float
    container: str


def container_restarts(line: bytes) -> list[ContainerRestart]:
    """The restarts of running containers in a line of a watch, oldest first; none for other bytes.

    A sidecar is an init container that keeps running.
    """
    found = (
        ContainerRestart(unix_seconds(box.state.running.started_at), box.name)
        for box in container_statuses(line).all
        if box.restart_count and box.state and box.state.running
    )
    return sorted(each for each in found if each.at)
