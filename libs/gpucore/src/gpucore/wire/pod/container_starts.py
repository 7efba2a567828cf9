"""When kubelet started the containers of a pod again, from the pod's status."""

from datetime import datetime
from typing import Final

import msgspec


class ContainerRestart(msgspec.Struct, frozen=True, order=True):
    """The last start of a container that ran before.

    Attributes:
        at: Unix seconds.
        container: its name.
    """

    at: float
    container: str


class _Running(msgspec.Struct, rename="camel"):
    started_at: str | None = None


class _State(msgspec.Struct):
    running: _Running | None = None


class _Container(msgspec.Struct, rename="camel"):
    name: str = ""
    restart_count: int = 0
    state: _State | None = None


class _Status(msgspec.Struct, rename="camel"):
    container_statuses: list[_Container] | None = None
    init_container_statuses: list[_Container] | None = None


class _Pod(msgspec.Struct):
    status: _Status | None = None


class _Event(msgspec.Struct):
    object: _Pod


_EVENT: Final = msgspec.json.Decoder(_Event)


def container_restarts(line: bytes) -> list[ContainerRestart]:
    """The restarts of running containers in a line of a watch, oldest first; none for other bytes.

    A sidecar is an init container that keeps running.
    """
    try:
        status = _EVENT.decode(line).object.status
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return []
    if status is None:
        return []
    boxes = (*(status.container_statuses or ()), *(status.init_container_statuses or ()))
    found = (ContainerRestart(_started(box.state), box.name) for box in boxes if box.restart_count)
    return sorted(each for each in found if each.at)


def _started(state: _State | None) -> float:
    """Unix seconds; 0 where the container does not run, or the text is no time with a zone."""
    running = state.running if state else None
    try:
        found = datetime.fromisoformat((running.started_at if running else None) or "")
    except ValueError:
        return 0.0
    return found.timestamp() if found.tzinfo else 0.0
