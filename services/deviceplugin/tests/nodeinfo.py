"""What a Node's status reports of its kubelet and its container runtime."""

from fakecluster.objects import Object


def with_versions(node: Object, kubelet: str, runtime: str) -> Object:
    """The node with these versions, as kubelet registers it."""
    info = {"kubeletVersion": kubelet, "containerRuntimeVersion": runtime}
    return node | {"status": node["status"] | {"nodeInfo": info}}
