"""When pods started, and which controller created them, as far as the plugin saw it."""

from gpucore.sizing.usage_history import START_SECONDS
from gpucore.units import PodUid
from gpucore.wire.pod.controllers import (
    Controller,
    controller_of_event,
    controllers_of_list,
)
from gpucore.wire.pods import Pod, created


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


class PodStarts:
    """When each running pod started; unknown for those that ran before the plugin did."""

    def __init__(self) -> None:
        self._began: dict[PodUid, float | None] = {}
        self._looked = False

    def look(self, running: list[Pod], now: float) -> list[Pod]:
        """Take the pods that run now; returns those that are seen for the first time.

        Args:
            now: Unix seconds.
        """
        new = [pod for pod in running if pod.uid not in self._began]
        for pod in new:
            young = self._looked or now - created(pod) < START_SECONDS
            self._began[pod.uid] = now if young else None
        present = {pod.uid for pod in running}
        self._began = {uid: began for uid, began in self._began.items() if uid in present}
        self._looked = True
        return new

    def knows(self, pod: Pod) -> bool:
        """The pod was seen from its start on."""
        return self._began.get(pod.uid) is not None

    def starting(self, pod: Pod, now: float) -> bool:
        """The pod started less than :data:`START_SECONDS` ago."""
        began = self._began.get(pod.uid)
        return began is not None and now - began < START_SECONDS
