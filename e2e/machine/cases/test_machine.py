"""A node as users have it: cgroup v2 only, systemd and the kubelet of today."""

import json

import pytest

from environments import podresources
from environments.case import Case
from environments.drivermode import ALLOCATE
from environments.machines import IN_NODE
from environments.waiting import until
from environments.workloads import Object
from machine.accounts import agree, lives, registered, sharing, used
from machine.environment import MachineEnvironment
from machine.nodefiles import NODE

pytestmark = [pytest.mark.e2e, pytest.mark.ondemand]

GIB = 1024
CGROUPS = "/sys/fs/cgroup"
APPARMOR = "cri-containerd.apparmor.d (enforce)"
"""The profile that containerd gives containers where AppArmor is on, as it is in Debian."""


def test_two_pods_share_a_gpu_of_a_node_with_cgroup_v2(
    environment: MachineEnvironment, case: Case
) -> None:
    """As kubeadm configures it kubelet refuses cgroup v1; the machine has version 2 alone."""
    assert environment.machine.shell(f"stat -fc %T {CGROUPS}").strip() == "cgroup2fs"
    config = environment.kubelet_config()
    assert (config["failCgroupV1"], config["cgroupDriver"]) == (True, "systemd")
    assert config["authentication"]["anonymous"] == {"enabled": False}
    case.create_running(sharing(case, "one", 10), sharing(case, "two", 20))
    assert case.gpu("one") == case.gpu("two")
    uuid = environment.nodes[NODE][case.gpu("one")].uuid
    assert [case.env(name)["NVIDIA_VISIBLE_DEVICES"] for name in ("one", "two")] == [uuid] * 2
    until("both are accounted for", lambda: sorted(used(environment)) == [0, 30])
    confined = case.kubectl("exec", "one", "-n", case.name, "--", "cat", "/proc/1/attr/current")
    assert confined.strip() == APPARMOR
    plugin = podresources.plugin_pod(environment, NODE)
    inside = ("exec", plugin, "-n", environment.namespace, "--", "cat", "/proc/self/attr/current")
    assert environment.kubectl(*inside).strip() == APPARMOR


def allocating(case: Case, name: str, units: int, *amounts: int) -> Object:
    """A pod with a limit of the driver that allocates these GiB first of all."""
    pod = sharing(case, name, units)
    (container,) = pod["spec"]["containers"]
    sizes = " ".join(str(amount * GIB) for amount in amounts)
    container["command"] = ["sh", "-c", f'python3 -c "$ALLOCATE" {sizes}; sleep 3600']
    container["env"] = [
        {"name": "ALLOCATE", "value": ALLOCATE},
        {"name": "POD_UID", "valueFrom": {"fieldRef": {"fieldPath": "metadata.uid"}}},
        {"name": "CGROUP_ROOT", "value": CGROUPS},
        {"name": "GPUSHARE_MOCK_NVML_MACHINE", "value": "/machine/machine"},
        {"name": "GPUSHARE_MOCK_NVML_STATE", "value": "/machine/state"},
    ]
    container["volumeMounts"] = [
        {"name": "machine", "mountPath": "/machine"},
        {"name": "cgroups", "mountPath": CGROUPS},
    ]
    pod["spec"]["volumes"] = [
        {"name": "machine", "hostPath": {"path": IN_NODE}},
        {"name": "cgroups", "hostPath": {"path": CGROUPS}},
    ]
    pod["spec"]["securityContext"] = {"runAsUser": 0}
    pod["metadata"]["annotations"]["gpushare/isolation"] = "driver"
    return pod


def answers(case: Case, name: str) -> list[str]:
    """What the driver answered to the allocations of a pod."""
    return case.kubectl("logs", name, "-n", case.name).splitlines()


def modes(environment: MachineEnvironment) -> list[str]:
    """Isolation mode of each GPU, as published."""
    annotations = environment.objects.node(NODE)["metadata"]["annotations"]
    inventory = json.loads(annotations.get("gpushare/inventory", '{"gpus": []}'))
    return [gpu["mode"] for gpu in inventory["gpus"]]


def limits_by_driver(environment: MachineEnvironment) -> None:
    """Have the driver limit memory on all GPUs."""
    environment.kubectl("label", "node", NODE, "gpushare/isolation=driver", "--overwrite")
    until("mode driver", lambda: modes(environment) == ["driver"] * 2)


def test_the_driver_limits_pods_by_their_cgroups(
    environment: MachineEnvironment, case: Case
) -> None:
    """The limit is on the slice that kubelet's systemd driver makes in the real hierarchy."""
    limits_by_driver(environment)
    case.create_running(allocating(case, "greedy", 4, 5, 4, 1), allocating(case, "neighbour", 8, 8))
    refused = ["5120 out of memory", "4096 allocated", "1024 out of memory"]
    until("greedy allocates", lambda: answers(case, "greedy") == refused)
    until("neighbour allocates", lambda: answers(case, "neighbour") == ["8192 allocated"])
    assert case.gpu("greedy") == case.gpu("neighbour")
    uid = case.get("greedy")["metadata"]["uid"].replace("-", "_")
    state = environment.machine.shell(f"cat {IN_NODE}/state")
    limit = next(line for line in state.splitlines() if "memory_limit" in line and uid in line)
    cgroup = limit.split()[-1]
    assert cgroup.startswith(f"{CGROUPS}/kubepods.slice/")
    assert cgroup.endswith(f"pod{uid}.slice")
    environment.machine.shell(f"test -d {cgroup}")


def restart(environment: MachineEnvironment, unit: str) -> None:
    """Restart a unit, and wait until kubelet serves the plugin's resource again."""
    before = environment.machine.shell(f"systemctl show -P MainPID {unit}")
    environment.machine.shell(f"systemctl restart {unit}")
    assert environment.machine.shell(f"systemctl show -P MainPID {unit}") != before
    registered(environment)


def test_restarts_of_kubelet_and_containerd_disturb_no_pod(
    environment: MachineEnvironment, case: Case
) -> None:
    """Pods run on, their shares stay allocated, and new pods get the rest."""
    size = environment.nodes[NODE][0].units
    case.create_running(sharing(case, "one", size - 4), sharing(case, "two", size - 4))
    before = lives(case, "one", "two")
    restart(environment, "kubelet")
    until("kubelet accounts for both", lambda: used(environment) == [size - 4] * 2)
    restart(environment, "containerd")
    until("kubelet accounts for both", lambda: used(environment) == [size - 4] * 2)
    case.create_running(sharing(case, "three", 4))
    case.kubectl.apply(sharing(case, "too-large", 5))
    until("the fourth is refused", lambda: case.events("FailedScheduling", "too-large"))
    assert lives(case, "one", "two") == before
    until("annotations agree with kubelet", lambda: agree(environment, case))
