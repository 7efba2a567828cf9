"""What pods and kubelet have learned since Kubernetes 1.20 works beside shares."""

import json

import pytest

from environments import podresources
from environments.case import Case
from environments.environment import Environment
from environments.kubectl import Object
from environments.podresources import GPU_MEM
from environments.waiting import until

pytestmark = [pytest.mark.e2e, pytest.mark.since("1.34")]

GATE = "example.com/quota"
# A request of PodResources' Get is a pod's name and namespace; its answer has one pod.
ASK_GET = (
    podresources.KUBELET
    + """
import sys
(pod,) = every(ask("Get", message((1, sys.argv[1]), (2, sys.argv[2]))), 1)
print(sum(len(every(device, 2)) for box in every(pod, 3) for device in every(box, 2)))
"""
)
READ_TOKEN = """
import base64, json, pathlib
folder = pathlib.Path("/var/run/secrets/kubernetes.io/serviceaccount")
part = (folder / "token").read_text().split(".")[1]
claims = json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))
print(claims["kubernetes.io"]["node"]["name"])
"""


def gate(pod: Object) -> Object:
    """The pod, which nobody may schedule before the gate is taken off it."""
    pod["spec"]["schedulingGates"] = [{"name": GATE}]
    return pod


def open_gate(case: Case, name: str) -> None:
    """Let the scheduler have the pod."""
    patch = json.dumps([{"op": "remove", "path": "/spec/schedulingGates"}])
    case.kubectl("patch", "pod", name, "-n", case.name, "--type=json", f"--patch={patch}")


def units(environment: Environment, case: Case, node: str, name: str) -> int:
    """What kubelet has handed out to a pod."""
    held = podresources.allocated(environment, node)
    mine = [each for each in held if (each.namespace, each.pod) == (case.name, name)]
    return sum(sum(each.gpus.values()) for each in mine)


def fill(environment: Environment, case: Case, node: str, taken: dict[int, int]) -> None:
    """Run a pod for the rest of each GPU: one unit miscounted, and it would not fit."""
    gpus = environment.nodes[node]
    rest = {gpu.index: gpu.units - taken.get(gpu.index, 0) for gpu in gpus}
    case.create_running(
        *(case.pod(f"rest-{index}", n, node=node) for index, n in rest.items() if n)
    )


def test_a_sidecars_share_counts_beside_that_of_the_containers(
    environment: Environment, case: Case, small: str
) -> None:
    """A restartable init container runs on; both have the pod's GPU, and five units are gone."""
    pod = case.pod("with-sidecar", 3, node=small)
    (container,) = pod["spec"]["containers"]
    sidecar = {**container, "name": "sidecar", "restartPolicy": "Always"}
    sidecar["resources"] = {"limits": {GPU_MEM: "2"}}
    pod["spec"]["initContainers"] = [sidecar]
    case.create_running(pod)
    gpu = case.gpu("with-sidecar")
    home = environment.nodes[small][gpu].uuid
    names = ("c0", "sidecar")
    env = {name: case.env("with-sidecar", container=name) for name in names}
    assert {each["NVIDIA_VISIBLE_DEVICES"] for each in env.values()} == {home}
    assert [env[name]["ALIYUN_COM_GPU_MEM_CONTAINER"] for name in names] == ["3", "2"]
    assert units(environment, case, small, "with-sidecar") == 5
    fill(environment, case, small, {gpu: 5})


def test_a_gated_pod_holds_nothing_and_is_placed_when_the_gate_opens(
    environment: Environment, case: Case, small: str
) -> None:
    """The whole node goes to others while it waits; it runs once they are gone and it may."""
    case.kubectl.apply(gate(case.pod("gated", 4, node=small)))
    fill(environment, case, small, {})
    (condition,) = case.get("gated")["status"]["conditions"]
    assert condition["reason"] == "SchedulingGated"
    case.delete(*(f"rest-{gpu.index}" for gpu in environment.nodes[small]))
    open_gate(case, "gated")
    case.wait_running("gated")
    assert units(environment, case, small, "gated") == 4


def test_a_container_is_resized_in_place_and_keeps_its_share(
    environment: Environment, case: Case, small: str
) -> None:
    """Its CPU changes, its share does not, and units of a share are refused as a change."""
    pod = case.pod("resized", 4, node=small)
    (container,) = pod["spec"]["containers"]
    container["resources"]["limits"] |= {"cpu": "100m", "memory": "64Mi"}
    case.create_running(pod)
    gpu, before = case.gpu("resized"), case.env("resized")
    resize(case, "resized", {"cpu": "200m", "memory": "64Mi", GPU_MEM: "4"})

    def cpu() -> bool:
        (status,) = case.get("resized")["status"]["containerStatuses"]
        limits = status.get("resources", {}).get("limits", {})
        return bool(limits.get("cpu") == "200m")

    until("kubelet has resized the container", cpu)
    (status,) = case.get("resized")["status"]["containerStatuses"]
    assert status["restartCount"] == 0
    assert (case.gpu("resized"), case.env("resized")) == (gpu, before)
    with pytest.raises(Exception, match="only cpu and memory resources are mutable"):
        resize(case, "resized", {"cpu": "200m", "memory": "64Mi", GPU_MEM: "5"})
    fill(environment, case, small, {gpu: 4})


def resize(case: Case, name: str, limits: dict[str, str]) -> None:
    """Ask kubelet for other limits of a running container."""
    container = {"name": "c0", "resources": {"limits": limits, "requests": limits}}
    patch = json.dumps({"spec": {"containers": [container]}})
    case.kubectl("patch", "pod", name, "-n", case.name, "--subresource=resize", f"--patch={patch}")


def test_pod_level_resources_stand_beside_a_share(
    environment: Environment, case: Case, small: str
) -> None:
    """CPU and memory are the pod's, units of GPU memory the container's."""
    pod = case.pod("level", 4, 0, node=small)
    amounts = {"cpu": "100m", "memory": "64Mi"}
    pod["spec"]["resources"] = {"requests": amounts, "limits": amounts}
    case.create_running(pod)
    assert units(environment, case, small, "level") == 4
    fill(environment, case, small, {case.gpu("level"): 4})


def test_kubelet_lists_one_pod_as_it_lists_all(
    environment: Environment, case: Case, small: str
) -> None:
    """PodResources' Get answers for a single pod; containerd 2 runs it."""
    case.create_running(case.pod("single", 3, node=small))
    command = ("python3", "-c", ASK_GET, "single", case.name)
    where = ("-n", environment.namespace, podresources.plugin_pod(environment, small), "--")
    assert environment.kubectl("exec", *where, *command).strip() == "3"
    runtime = environment.objects.node(small)["status"]["nodeInfo"]["containerRuntimeVersion"]
    assert runtime.startswith("containerd://2.")


def test_the_plugins_tokens_name_their_nodes(environment: Environment) -> None:
    """A token that is stolen from a node names the node, and the admission policy goes by it."""
    for node in environment.nodes:
        where = ("-n", environment.namespace, podresources.plugin_pod(environment, node), "--")
        found = environment.kubectl("exec", *where, "python3", "-c", READ_TOKEN)
        assert found.strip() == node


def test_a_pod_cannot_replace_what_its_share_sets(case: Case, small: str) -> None:
    """Admission cannot read envFrom; the container runtime applies the plugin's CDI edits last."""
    wanted = {
        "NVIDIA_VISIBLE_DEVICES": "all",
        "ALIYUN_COM_GPU_MEM_CONTAINER": "99",
        "COLOUR": "red",
    }
    metadata = {"name": "wanted", "namespace": case.name}
    case.kubectl.apply(
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": wanted}
    )
    pod = case.pod("greedy", 2, node=small)
    pod["spec"]["containers"][0]["envFrom"] = [{"configMapRef": {"name": "wanted"}}]
    case.create_running(pod)
    found = case.env("greedy")
    assert found["COLOUR"] == "red"
    assert found["ALIYUN_COM_GPU_MEM_CONTAINER"] == "2"
    assert found["NVIDIA_VISIBLE_DEVICES"].startswith("GPU-")
