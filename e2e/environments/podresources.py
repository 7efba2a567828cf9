"""The devices that kubelet itself has allocated: its PodResources API, called on the node.

It is called from inside the plugin's own pod, where the socket is mounted, so it works the
same on a mock cluster and on real nodes.
"""

import json
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

import msgspec

from environments.environment import Environment
from environments.waiting import until
from standins import wireformat

GPU_MEM = "aliyun.com/gpu-mem"

KUBELET = (
    Path(wireformat.__file__).read_text()
    + """
import grpc
def text(data, number):
    return b"".join(value for found, value in fields(data) if found == number).decode()
def every(data, number):
    return [value for found, value in fields(data) if found == number]
def ask(method, request):
    options = [("grpc.default_authority", "localhost")]
    path = "unix:///var/lib/kubelet/pod-resources/kubelet.sock"
    with grpc.insecure_channel(path, options=options) as channel:
        return channel.unary_unary("/v1.PodResourcesLister/" + method)(request, timeout=60)
"""
)
"""Head of a program that calls kubelet; the program runs in a pod of the plugin."""

# Fields: a response has pods as 1; a pod is name 1, namespace 2, containers 3; a container is
# name 1, devices 2; a device is resource_name 1, device_ids 2.
_LIST = """
import json
print(json.dumps([
    [text(pod, 2), text(pod, 1), text(container, 1), text(device, 1),
     [one.decode() for one in every(device, 2)]]
    for pod in every(ask("List", b""), 1)
    for container in every(pod, 3)
    for device in every(container, 2)
]))
"""

# Fields: a response has devices as 1; a device is resource_name 1, device_ids 2.
_ALLOCATABLE = """
import sys
devices = every(ask("GetAllocatableResources", b""), 1)
print(sum(len(every(one, 2)) for one in devices if text(one, 1) == sys.argv[1]))
"""


class ContainerUnits(msgspec.Struct, frozen=True):
    """Units of a resource that one container holds, by uuid of the GPU."""

    namespace: str
    pod: str
    container: str
    gpus: Mapping[str, int]


def allocated(environment: Environment, node: str, *resources: str) -> list[ContainerUnits]:
    """What kubelet on ``node`` has allocated of these resources, of shares if none is named."""
    wanted = resources or (GPU_MEM,)
    text = _run(environment, node, _LIST)
    found: dict[tuple[str, str, str], dict[str, int]] = defaultdict(lambda: defaultdict(int))
    for namespace, pod, container, resource, ids in json.loads(text):
        if resource in wanted:
            for device in ids:
                found[namespace, pod, container][device.split("-_-")[0]] += 1
    return [ContainerUnits(*key, dict(gpus)) for key, gpus in found.items()]


def allocatable(environment: Environment, node: str, resource: str = GPU_MEM) -> int:
    """Units that kubelet on ``node`` can allocate; from Kubernetes 1.23.

    The status of the node has what kubelet had last, which after its restart is that of before.
    """
    return int(_run(environment, node, _ALLOCATABLE, resource))


def plugin_pod(environment: Environment, node: str) -> str:
    """Name of the device plugin pod of a node, once one runs."""
    return until(f"a plugin runs on {node}", lambda: _running_plugin(environment, node))


def _run(environment: Environment, node: str, program: str, *arguments: str) -> str:
    """Output of a program that calls kubelet from the plugin's pod."""
    where = ("exec", plugin_pod(environment, node), "-n", environment.namespace, "--")
    return environment.kubectl(*where, "python", "-c", KUBELET + program, *arguments)


def _running_plugin(environment: Environment, node: str) -> str:
    chosen = ("-l", "app.kubernetes.io/component=device-plugin")
    running = ("--field-selector", f"spec.nodeName={node},status.phase=Running")
    pods = environment.kubectl.items("pods", "-n", environment.namespace, *chosen, *running)
    alive = [pod["metadata"] for pod in pods if "deletionTimestamp" not in pod["metadata"]]
    return str(alive[0]["name"]) if alive else ""
