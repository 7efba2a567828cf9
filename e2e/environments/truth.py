"""What kubelet itself says of the devices: its PodResources answer, read on the node.

The question is asked from inside the plugin's own pod, where the socket is mounted, so it works the
same on a mock cluster and on real nodes.
"""

import json
from collections import defaultdict
from collections.abc import Mapping

import msgspec

from environments.environment import Environment

GPU_MEM = "aliyun.com/gpu-mem"

_ASK = """
import json, grpc
from gpudeviceplugin.proto import podresources_pb2 as pb, podresources_pb2_grpc as rpc
options = [("grpc.default_authority", "localhost")]
path = "unix:///var/lib/kubelet/pod-resources/kubelet.sock"
with grpc.insecure_channel(path, options=options) as channel:
    answer = rpc.PodResourcesListerStub(channel).List(pb.ListPodResourcesRequest(), timeout=10)
print(json.dumps([
    [pod.namespace, pod.name, container.name, device.resource_name, list(device.device_ids)]
    for pod in answer.pod_resources
    for container in pod.containers
    for device in container.devices
]))
"""


class Held(msgspec.Struct, frozen=True):
    """Units of a resource that one container holds, by uuid of the card."""

    namespace: str
    pod: str
    container: str
    cards: Mapping[str, int]


def held(environment: Environment, node: str, *resources: str) -> list[Held]:
    """What kubelet on ``node`` has handed out of these resources, of shares if none is named."""
    kubectl, wanted = environment.kubectl, resources or (GPU_MEM,)
    plugin = plugin_pod(environment, node)
    text = kubectl("exec", plugin, "-n", environment.namespace, "--", "python", "-c", _ASK)
    found: dict[tuple[str, str, str], dict[str, int]] = defaultdict(lambda: defaultdict(int))
    for namespace, pod, container, resource, ids in json.loads(text):
        if resource in wanted:
            for device in ids:
                found[namespace, pod, container][device.split("-_-")[0]] += 1
    return [Held(*key, dict(cards)) for key, cards in found.items()]


def plugin_pod(environment: Environment, node: str) -> str:
    """Name of the running device plugin pod of a node."""
    pods = environment.kubectl.items(
        "pods",
        "-n",
        environment.namespace,
        "-l",
        "app.kubernetes.io/component=device-plugin",
        "--field-selector",
        f"spec.nodeName={node},status.phase=Running",
    )
    alive = [pod for pod in pods if "deletionTimestamp" not in pod["metadata"]]
    name: str = alive[0]["metadata"]["name"]
    return name
