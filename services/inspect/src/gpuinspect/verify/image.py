"""The image of the pods: that of the device plugin, which every GPU node has already."""

import msgspec

from gpucore.wire.pod.spec import Pod
from gpuinspect.cluster.release import own_plugins
from gpuinspect.cluster.snapshots import Snapshot
from gpuinspect.errors import InspectError


class _Container(msgspec.Struct):
    image: str = ""


class _Spec(msgspec.Struct):
    containers: list[_Container] = []


class _Pod(msgspec.Struct):
    spec: _Spec


def plugin_pods(snapshot: Snapshot) -> dict[str, Pod]:
    """The pod of the device plugin by node."""
    return {str(pod.node): pod for pod, _ in own_plugins(snapshot)}


def image_on(snapshot: Snapshot, node: str) -> str:
    """The image of the device plugin's pod on a node.

    Raises:
        InspectError: the node has none.
    """
    for pod, raw in own_plugins(snapshot):
        if pod.node == node:
            return msgspec.json.decode(raw, type=_Pod).spec.containers[0].image
    raise InspectError(
        f"node {node} has no pod of gpushare's device plugin, whose image the checks run:"
        " install the chart there, or name an image of this release with --image"
    )
