"""Gangs of a cluster: their pods start together or not at all.

The size of a PodGroup is not among the labels of its pods, which count as pods of their own.
"""

from collections import Counter
from collections.abc import Iterable

from gpucore.wire.pod.gangs import gang_of
from gpucore.wire.pod.spec import Pod


class ClusterGangs:
    """The pods of gangs, by ``namespace/name``.

    Args:
        pods: of the whole cluster.
    """

    def __init__(self, pods: Iterable[Pod]) -> None:
        alive = [pod for pod in pods if not (pod.finished or pod.terminating or pod.gated)]
        found = [(pod, gang) for pod in alive if (gang := gang_of(pod)) is not None]
        self._gangs = {f"{pod.namespace}/{pod.name}": gang for pod, gang in found}
        self._exist = Counter(gang.key for _, gang in found)
        self._bound = Counter(gang.key for pod, gang in found if pod.node)

    def complete(self, name: str) -> bool:
        """All pods of the gang of a pod exist; so for a pod without a gang."""
        gang = self._gangs.get(name)
        return gang is None or self._exist[gang.key] >= gang.size

    def together(self, fitting: Iterable[str]) -> tuple[str, ...]:
        """Of pods that fit one by one, those whose whole gang fits or has a node."""
        names = tuple(fitting)
        placed = self._bound + Counter(
            self._gangs[name].key for name in names if name in self._gangs
        )
        return tuple(name for name in names if self._whole(name, placed))

    def _whole(self, name: str, placed: Counter[tuple[str, str]]) -> bool:
        gang = self._gangs.get(name)
        return gang is None or placed[gang.key] >= gang.size
