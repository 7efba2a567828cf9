"""Lets model servers of one namespace start on a GPU one after the other.

The end of a turn is seen in the status that kubelet writes, so no container has to give anything
back: one that is killed loses its turn. A restarted plugin knows no turns and lets the next pod go.
"""

import time
from collections.abc import Callable, Collection

from gpucore.node.isolation.turns import StartTurn, after, blocking, starting_status, turn_seconds
from gpucore.units import GpuIndex, PodUid
from gpucore.wire.names import START_TURN_WORDS
from gpucore.wire.pods import Pod
from gpudeviceplugin.state import NodeState


class StartTurns:
    """The turns of this node's GPUs."""

    def __init__(self, state: NodeState, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._state = state
        self._clock = clock
        self._turns: dict[PodUid, StartTurn] = {}

    def take(self, pod: Pod, gpus: Collection[GpuIndex]) -> str:
        """Give the pod its turn on these GPUs; returns why it has to wait, or ''."""
        seconds, now = turn_seconds(pod), self._clock()
        if not seconds:
            return ""
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
        turn = self._turns.pop(pod.uid, None)
        kept = turn and after(turn, starting_status(line))
        if kept:
            self._turns[pod.uid] = kept
