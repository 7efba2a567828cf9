"""Lets model servers of one namespace start on a GPU one after the other.

The end of a turn is seen in the status that kubelet writes, so no container has to give anything
back: one that is killed loses its turn. A restarted plugin finds the turns in the pods that it
lists: those whose containers run and are not ready yet.
"""

import time
from collections.abc import Callable, Collection
from datetime import datetime

from gpucore.node.isolation.turns import (
    StartingStatus,
    StartTurn,
    after,
    blocking,
    starting_status,
    starting_statuses,
    turn_seconds,
)
from gpucore.units import GpuIndex, PodUid
from gpucore.wire.names import START_TURN_WORDS
from gpucore.wire.pod.spec import Pod
from gpudeviceplugin.state import NodeState


class StartTurns:
    """The turns of this node's GPUs.

    Args:
        clock: in seconds, steady.
        wall: in seconds since 1970.
    """

    def __init__(
        self,
        state: NodeState,
        *,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._state = state
        self._clock = clock
        self._wall = wall
        self._turns: dict[PodUid, StartTurn] = {}
        self._listed: dict[PodUid, StartingStatus] = {}

    def take(self, pod: Pod, gpus: Collection[GpuIndex]) -> str:
        """Give the pod its turn on these GPUs; returns why it has to wait, or ''."""
        seconds, now = turn_seconds(pod), self._clock()
        if not seconds:
            return ""
        self._find(now)
        pods = self._state.pods
        live = {uid for uid in self._turns if uid in pods and not pods[uid].finished}
        self._turns = {uid: self._turns[uid] for uid in live if self._turns[uid].lasts(now)}
        found = blocking(pod, gpus, self._turns.values(), now)
        if found is not None:
            left = int(found.since + found.seconds - now)
            return (
                f"{START_TURN_WORDS}: pod {found.namespace}/{found.name} is starting on the same "
                f"GPU, for {left} s at most"
            )
        turn = StartTurn(pod.uid, pod.namespace, pod.name, frozenset(gpus), now, seconds)
        self._turns[pod.uid] = turn
        return ""

    def seen(self, pod: Pod, line: bytes) -> None:
        """Kubelet has written the status of a pod."""
        self._follow(pod.uid, starting_status(line))

    def listed(self, page: bytes) -> None:
        """A page of a list of all pods of the node."""
        for uid, status in starting_statuses(page).items():
            self._follow(uid, status)
            if status.running and not status.ready and uid not in self._turns:
                self._listed[uid] = status

    def _follow(self, uid: PodUid, status: StartingStatus) -> None:
        if status.ready or not status.running:
            self._listed.pop(uid, None)
        turn = self._turns.pop(uid, None)
        kept = turn and after(turn, status)
        if kept:
            self._turns[uid] = kept

    def _find(self, now: float) -> None:
        """Enter the turns of listed pods, whose GPUs are known by now."""
        found, self._listed = self._listed, {}
        for uid, status in found.items():
            pod = self._state.pods.get(uid)
            seconds = turn_seconds(pod) if pod else 0
            if pod is None or not seconds or uid in self._turns:
                continue
            gpus = self._state.matcher.gpus_held(pod.namespace, pod.name)
            since = now - max(self._wall() - self._moment(status.started), 0.0)
            self._turns[uid] = StartTurn(
                uid, pod.namespace, pod.name, gpus, since, seconds, ran=True
            )

    def _moment(self, text: str) -> float:
        try:
            return datetime.fromisoformat(text).timestamp()
        except (ValueError, OverflowError, OSError):
            return self._wall()
