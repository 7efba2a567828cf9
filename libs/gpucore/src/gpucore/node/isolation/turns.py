"""Whose turn it is to start on a GPU, among pods that must not start side by side.

A model server measures the free memory of its GPU while it starts, so two that start at once
mistake each other's memory. A pod with the annotation ``gpushare/start-turn`` has its turn from the
moment that its container may start until the pod is ready, its container has ended, or its time
is over. It waits for pods of its own namespace only, so no tenant can delay the pods of another.
"""

from collections.abc import Collection, Iterable
from typing import Final

import msgspec

from gpucore.units import GpuIndex, PodUid
from gpucore.wire import names as wire_names
from gpucore.wire.pod.container_statuses import (
    ContainerStatuses,
    container_statuses,
    container_statuses_of_list,
)
from gpucore.wire.pod.spec import Pod
from gpucore.wire.quantity import number

MOST_SECONDS: Final = 3600
BEGIN_SECONDS: Final = 30.0
"""A container that does not run so long after it was let go has failed to start."""


class StartTurn(msgspec.Struct, frozen=True):
    """A pod that starts on GPUs.

    Attributes:
        since: when its container was allowed to start, in seconds of any steady clock.
        seconds: its turn lasts so long at most.
        ran: a container of it was seen running.
    """

    uid: PodUid
    namespace: str
    name: str
    gpus: frozenset[GpuIndex]
    since: float
    seconds: int
    ran: bool = False

    def lasts(self, now: float) -> bool:
        """The pod may still be starting."""
        return now - self.since < (self.seconds if self.ran else min(self.seconds, BEGIN_SECONDS))


def turn_seconds(pod: Pod) -> int:
    """For how many seconds the pod keeps its turn at most; 0 for a pod that takes none."""
    text = pod.annotations.get(wire_names.START_TURN, "")
    return min(number(text, below=1 << 31) or 0, MOST_SECONDS)


def blocking(
    pod: Pod, gpus: Collection[GpuIndex], turns: Iterable[StartTurn], now: float
) -> StartTurn | None:
    """The pod of the same namespace that starts on one of these GPUs."""
    others = (each for each in turns if each.uid != pod.uid and each.namespace == pod.namespace)
    return next(
        (each for each in others if each.lasts(now) and not each.gpus.isdisjoint(gpus)), None
    )


class StartingStatus(msgspec.Struct, frozen=True):
    """What kubelet has written about the containers of a pod.

    Attributes:
        running: one of them runs.
        ready: all of them are ready.
        started: RFC 3339 time at which the last of those that run was started.
    """

    running: bool = False
    ready: bool = False
    started: str = ""


def starting_status(line: bytes) -> StartingStatus:
    """From one line of a watch; of other text nothing is known."""
    return _status(container_statuses(line))


def starting_statuses(page: bytes) -> dict[PodUid, StartingStatus]:
    """From a page of a list of pods, by uid; of other text nothing is known."""
    return {uid: _status(each) for uid, each in container_statuses_of_list(page).items()}


def _status(found: ContainerStatuses) -> StartingStatus:
    containers = found.containers
    running = [each.state.running for each in containers if each.state and each.state.running]
    return StartingStatus(
        bool(running),
        bool(containers) and all(each.ready for each in containers),
        max((each.started_at or "" for each in running), default=""),
    )


def after(turn: StartTurn, status: StartingStatus) -> StartTurn | None:
    """The turn once kubelet has written this; ``None`` when it is over."""
    if status.ready or (turn.ran and not status.running):
        return None
    return msgspec.structs.replace(turn, ran=turn.ran or status.running)
