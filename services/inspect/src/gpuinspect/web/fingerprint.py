"""What reasons and labels on pages depend on beside the allocations, without heartbeats."""

from collections.abc import Collection, Iterator
from typing import Final

import msgspec

from gpucore.claims.objects import CLAIM, CLASS, TEMPLATE
from gpucore.wire.node.spec import Node
from gpuinspect.cluster.snapshots import Snapshot

_KINDS: Final = (CLAIM, CLASS, TEMPLATE)


def fingerprint(snapshot: Snapshot, nodes: Collection[str]) -> tuple[object, ...]:
    """Equal for two snapshots whose objects are equal in what pages show of them.

    Args:
        nodes: names of those with GPUs, whose pods count.
    """
    return (
        tuple(map(_without_heartbeat, snapshot.nodes)),
        tuple(_pods_on(snapshot, nodes)),
        tuple(tuple(map(bytes, snapshot.all(kind))) for kind in _KINDS),
    )


def _without_heartbeat(node: Node) -> Node:
    """The node without what kubelet and controllers write again and again."""
    return msgspec.structs.replace(node, annotations={}, resource_version="")


def _pods_on(snapshot: Snapshot, nodes: Collection[str]) -> Iterator[tuple[object, ...]]:
    for pod in snapshot.pods:
        if pod.node in nodes:
            yield pod.uid, pod.labels, pod.finished
