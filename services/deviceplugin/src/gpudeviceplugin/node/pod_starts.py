"""When pods started, and which controller created them, as far as the plugin saw it."""

from collections.abc import Collection
from typing import Final

from gpucore.sizing.usage_history import START_SECONDS
from gpucore.units import PodUid
from gpucore.wire.pod.controllers import Controller, controller_of_event, controllers_of_list
from gpucore.wire.pod.spec import Pod, created


class PodControllers:
    """Controllers of the node's pods, read from the lists and events of the watch."""

    def __init__(self) -> None:
        self._known: dict[PodUid, Controller] = {}
        self._absent: set[PodUid] = set()

    def listed(self, page: bytes) -> None:
        """A page of a list of the node's pods."""
        self._known.update(controllers_of_list(page))

    def seen(self, pod: Pod, line: bytes) -> None:
        """An event of a pod; the controller of a pod is read once."""
        if pod.owner and pod.uid not in self._known:
            found = controller_of_event(line)
            if found is not None:
                self._known[pod.uid] = found

    def of(self, pod: Pod) -> Controller | None:
        """The controller of a pod; ``None`` where it has none, or it is not known yet."""
        return self._known.get(pod.uid)

    def keep(self, pods: set[PodUid]) -> None:
        """Forget the pods that are missing for the second time.

        A page is read before its pods are handed over, so a pod may be missing once.
        """
        absent = self._known.keys() - pods
        for uid in absent & self._absent:
            del self._known[uid]
        self._absent = absent - (absent & self._absent)


MOST_RESTARTS: Final = 10
"""Restarts of one pod that count as starts: a container that ends again and again is one case."""


class PodStarts:
    """When each running pod started last; unknown for those that ran before the plugin did."""

    def __init__(self) -> None:
        self._began: dict[PodUid, float | None] = {}
        self._newest: dict[PodUid, float] = {}
        self._restarts: dict[PodUid, int] = {}
        self._measuring: set[PodUid] = set()
        self._looked = False

    def look(self, running: list[Pod], present: Collection[PodUid], now: float) -> list[Pod]:
        """Take the pods that run now; returns those that are seen for the first time.

        Args:
            present: pods of the node; one of them whose GPUs are unknown for a moment is not
                forgotten.
            now: Unix seconds.
        """
        new = [pod for pod in running if pod.uid not in self._began]
        for pod in new:
            young = self._looked or now - created(pod) < START_SECONDS
            self._began[pod.uid], self._newest[pod.uid] = now if young else None, now
        self._began = {uid: began for uid, began in self._began.items() if uid in present}
        self._newest = {uid: at for uid, at in self._newest.items() if uid in present}
        self._restarts = {uid: count for uid, count in self._restarts.items() if uid in present}
        self._measuring &= self._began.keys()
        self._looked = True
        return new

    def restarted(self, pod: Pod, at: float) -> None:
        """A container of the pod was started again.

        Args:
            pod: a restart before the plugin looked at it first does not count.
            at: Unix seconds; an event shows a restart as often as there are events after it.
        """
        if at > self._newest.get(pod.uid, at):
            self._newest[pod.uid] = self._began[pod.uid] = at
            self._measuring.add(pod.uid)

    def restarts_measured(self, now: float) -> set[PodUid]:
        """Pods whose last restart was measured for :data:`START_SECONDS` now, each restart once.

        One that ended before shows no start-up, and only :data:`MOST_RESTARTS` of a pod count.
        """
        done = {u for u in self._measuring if now - (self._began[u] or 0.0) >= START_SECONDS}
        self._measuring -= done
        counted = {uid for uid in done if self._restarts.get(uid, 0) < MOST_RESTARTS}
        for uid in counted:
            self._restarts[uid] = self._restarts.get(uid, 0) + 1
        return counted

    def knows(self, pod: Pod) -> bool:
        """The pod was seen from its start on."""
        return self._began.get(pod.uid) is not None

    def starting(self, pod: Pod, now: float) -> bool:
        """The pod or a container of it started less than :data:`START_SECONDS` ago."""
        began = self._began.get(pod.uid)
        return began is not None and now - began < START_SECONDS
