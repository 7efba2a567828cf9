"""Withdraws a GPU that the container runtime cannot reach although it answers every probe.

A controller would create pods for such a GPU without end, since it looks free. A tenant must not be
able to withdraw a GPU from others, and a namespace is all that a tenant has for certain: so the
failures must come from pods of several namespaces.
"""

from collections import Counter
from collections.abc import Iterable
from typing import Final, NamedTuple

from gpucore.units import GpuIndex, PodUid

WINDOW_SECONDS: Final = 600.0
HOLD_SECONDS: Final = 300.0
"""Minimum time for which a withdrawn GPU stays unhealthy."""
MIN_NAMESPACES: Final = 2


class _Failure(NamedTuple):
    namespace: str
    at: float


class Breaker:
    """Failures of every GPU in a window of time. Not safe for several threads.

    Args:
        limit: number of failed pods from which a GPU is withdrawn.
    """

    def __init__(self, *, limit: int) -> None:
        self._limit = limit
        self._failures: dict[GpuIndex, dict[PodUid | str, _Failure]] = {}

    def failed(
        self, gpus: Iterable[GpuIndex], pod: PodUid | str, namespace: str, now: float
    ) -> list[GpuIndex]:
        """A pod (counted once) failed on ``gpus``; returns those that must be withdrawn."""
        failure = _Failure(namespace, now)
        return [gpu for gpu in gpus if self._trips(gpu, pod, failure)]

    def _trips(self, gpu: GpuIndex, pod: PodUid | str, failure: _Failure) -> bool:
        known = self._failures.get(gpu, {})
        recent = {key: f for key, f in known.items() if failure.at - f.at < WINDOW_SECONDS}
        counts = Counter(each.namespace for each in recent.values())
        if counts[failure.namespace] < self._limit:  # more would only take memory
            recent.setdefault(pod, failure)
        self._failures[gpu] = recent
        namespaces = {each.namespace for each in recent.values()}
        if len(recent) < self._limit or len(namespaces) < MIN_NAMESPACES:
            return False
        del self._failures[gpu]
        return True

    def started(self, gpus: Iterable[GpuIndex]) -> None:
        """A pod runs on ``gpus``, so they are not broken."""
        for gpu in gpus:
            self._failures.pop(gpu, None)
