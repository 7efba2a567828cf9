"""The newest state of the cluster, read at an interval, and who waits for it to change.

One reader for all browsers: the API server sees the same load for one viewer as for a hundred. A
failed read keeps the last frame and says so in it. Where reading takes long, it is done less often:
at most a tenth of the time goes into it.
"""

import asyncio
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import cached_property
from typing import Final

import msgspec

from gpucore.fragmentation import TYPICAL
from gpucore.ledger import Ledger
from gpucore.model import Demand
from gpucore.scheduling.candidates import Candidates
from gpucore.scheduling.constraints import PodConstraints
from gpucore.units import NodeName
from gpucore.wire.errors import WireError
from gpucore.wire.names import Names
from gpucore.wire.nodes import Node
from gpucore.wire.pods import demand_of
from gpucore.wire.podspec import Pod
from gpuinspect import state
from gpuinspect.candidates import candidates, constraints_of
from gpuinspect.errors import InspectError
from gpuinspect.explaining import Explanation, explain
from gpuinspect.schedulers import ClusterPolicy, policy_of
from gpuinspect.snapshots import Snapshot
from gpuinspect.views import ClusterView, NodeView

PAUSE: Final = 9
"""Times the length of a read that follow it without one."""


def pause(interval: float, *, after: float) -> float:
    """Seconds without a read, following one that took ``after`` seconds."""
    return max(interval, PAUSE * after)


class Frame:
    """The cluster at one moment, with what pages derive from it.

    Attributes:
        taken: when it was read.
        error: why it could not be read again since; empty is well.
    """

    def __init__(self, snapshot: Snapshot, names: Names, *, taken: datetime) -> None:
        self.snapshot = snapshot
        self.taken = taken
        self.error = ""
        self.ledger: Ledger = state.books(snapshot, names)
        self.view: ClusterView = state.shown(self.ledger, snapshot.nodes)
        self._explained: dict[tuple[Demand, PodConstraints, str], Explanation] = {}

    @cached_property
    def waiting(self) -> tuple[tuple[Pod, Demand], ...]:
        """Pods that ask for GPUs and are on no node, oldest first."""
        asked = (
            (pod, demand_of(pod, self.ledger.names))
            for pod in self.snapshot.pods
            if not pod.node and not pod.finished
        )
        pairs = [(pod, demand) for pod, demand in asked if demand is not None]
        return tuple(sorted(pairs, key=lambda pair: (pair[0].creation, pair[0].name)))

    @cached_property
    def candidates(self) -> Candidates:
        """The nodes as the scheduler sees them."""
        return candidates(self.snapshot, self.ledger)

    @cached_property
    def policy(self) -> ClusterPolicy:
        """The policies of the cluster's extender."""
        return policy_of(self.snapshot)

    @cached_property
    def nodes(self) -> Mapping[NodeName, Node]:
        """The node objects by name."""
        return {node.name: node for node in self.snapshot.nodes}

    @cached_property
    def fragments(self) -> tuple[float, float]:
        """Cards that are free, and how many of these the usual work could not use."""
        free = lost = 0.0
        for node in self.view.nodes:
            parts = self.ledger.nodes()[node.name].free_parts().values()
            free += sum(parts) / 1000
            lost += TYPICAL.fragmentation(tuple(sorted(parts)))
        return free, lost

    def node(self, name: str) -> NodeView | None:
        """The view of one node."""
        return next((node for node in self.view.nodes if node.name == name), None)

    def pod(self, namespace: str, name: str) -> Pod | None:
        """The pod of this name."""
        pods = (p for p in self.snapshot.pods if (p.namespace, p.name) == (namespace, name))
        return next(pods, None)

    def reason(self, pod: Pod, demand: Demand) -> Explanation:
        """Why a pod waits; worked out once for all pods that ask and require the same."""
        constraints = constraints_of(self.snapshot, pod, self.ledger.names)
        kind = (demand, constraints, pod.scheduler_name)
        known = self._explained.get(kind)
        if known is None:
            known = self._explained[kind] = self.explain(pod)
        return known

    def explain(self, pod: Pod) -> Explanation:
        """Why a pod waits or where it sits."""
        return explain(self.snapshot, pod, self.ledger, nodes=self.candidates)

    def shows_the_same(self, other: "Frame") -> bool:
        """No page would look different but for its time."""
        return (
            self.error == other.error and self.view == other.view and self.waiting == other.waiting
        )


class Feed:
    """Reads frames and tells of changes."""

    def __init__(self, read: Callable[[], Snapshot], names: Names, *, interval: float) -> None:
        self._read = read
        self._names = names
        self._interval = interval
        self._news = asyncio.Condition()
        self.version = 0
        self.frame: Frame | None = None
        self.error = "the cluster has not been read yet"

    async def run(self) -> None:
        """Read for ever."""
        while True:
            began = time.monotonic()
            await self.refresh()
            await asyncio.sleep(pause(self._interval, after=time.monotonic() - began))

    async def refresh(self) -> None:
        """Read once, and wake who waits when something changed."""
        try:
            frame = await asyncio.to_thread(self._frame)
        except (InspectError, WireError, msgspec.MsgspecError) as error:
            self.error = str(error)
            changed = self.frame is not None and self.frame.error != self.error
            if self.frame is not None:
                self.frame.error = self.error
        else:
            changed = self.frame is None or not frame.shows_the_same(self.frame)
            self.frame, self.error = frame, ""
        if changed:
            async with self._news:
                self.version += 1
                self._news.notify_all()

    def _frame(self) -> Frame:
        snapshot = self._read()
        frame = Frame(snapshot, self._names, taken=datetime.now(UTC))
        _ = frame.waiting, frame.fragments  # worked out here, off the event loop
        return frame

    async def newer(self, version: int) -> int:
        """The version, once it is another than ``version``."""
        async with self._news:
            await self._news.wait_for(lambda: self.version != version)
            return self.version
