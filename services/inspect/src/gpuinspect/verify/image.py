"""The image of the pods: that of the device plugin, which every GPU node has already."""

from gpucore.wire.pod.spec import Pod
from gpuinspect.cluster.rawpods import spec_of
from gpuinspect.cluster.release import own_plugins
from gpuinspect.cluster.snapshots import Snapshot
from gpuinspect.errors import InspectError


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
            return (spec_of(raw).containers or [])[0].image
    raise InspectError(
        f"node {node} has no pod of gpushare's device plugin, whose image the checks run:"
        " install the chart there, or name an image of this release with --image"
    )


def pull_secrets_on(snapshot: Snapshot, node: str, namespace: str) -> tuple[str, ...]:
    """The pull secrets of the device plugin's pod on a node, for pods of its namespace.

    Kubernetes 1.35 and later give a pod without the credentials no image that was pulled with them.
    """
    for pod, raw in own_plugins(snapshot):
        if (pod.node, pod.namespace) == (node, namespace):
            found = spec_of(raw).image_pull_secrets or ()
            return tuple(each.name for each in found if each.name)
    return ()
