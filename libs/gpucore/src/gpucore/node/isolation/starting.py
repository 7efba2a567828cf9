"""Which pod a container belongs to that kubelet is about to start, by the device IDs it names.

kubelet names only device IDs before a start. It has admitted all containers of the pod by then,
and lists the IDs of each, except those of init containers that end; for these the plugin adds what
it gave them.
"""

from collections.abc import Collection, Iterable

import msgspec

from gpucore.node.allocation.holdings import Held


class StartingPod(msgspec.Struct, frozen=True):
    """A pod of which a container starts.

    Attributes:
        ids: of memory, of all its containers as far as kubelet lists them, and of the container.
    """

    namespace: str
    name: str
    ids: frozenset[str]


def starting_pod(ids: Collection[str], account: Iterable[Held]) -> StartingPod | None:
    """The pod that has these IDs of memory; ``None`` while it is not certain.

    Args:
        ids: what kubelet names.
        account: of kubelet, read after it named them, with what init containers were given.
    """
    found = [pod for pod in account if not pod.memory_ids.isdisjoint(ids)]
    if len(found) != 1:
        return None
    return StartingPod(found[0].namespace, found[0].name, found[0].memory_ids | set(ids))
