"""Memory limits by the driver: in force before a container runs, kept, verified, and refused."""

from collections.abc import Iterator
from functools import partial

import pytest

from environments import table
from environments.case import Case
from environments.drivermode import ALLOCATE, LimitedNode, limited, plugins_run
from environments.kind import KindEnvironment
from environments.kubectl import KubectlError
from environments.machines import IN_NODE
from environments.podresources import plugin_pod
from environments.waiting import until
from environments.workloads import Object

pytestmark = pytest.mark.e2e

GIB = 1024
NO_LIMIT = f"0 {(1 << 64) - 1}"


@pytest.fixture(scope="module")
def node(environment: KindEnvironment, small: str) -> Iterator[LimitedNode]:
    """The small node, with GPUs whose driver limits memory."""
    with limited(environment, small) as found:
        yield found


def allocating(case: Case, node: LimitedNode, name: str, units: int, *amounts: int) -> Object:
    """A pod with a share that allocates these GiB first of all, and then does nothing."""
    pod = case.pod(name, units, node=node.name)
    sizes = " ".join(str(amount * GIB) for amount in amounts)
    (container,) = pod["spec"]["containers"]
    container["command"] = ["sh", "-c", f'python3 -c "$ALLOCATE" {sizes}; sleep 3600']
    uid = {"fieldRef": {"fieldPath": "metadata.uid"}}
    container["env"] = [
        {"name": "ALLOCATE", "value": ALLOCATE},
        {"name": "POD_UID", "valueFrom": uid},
        {"name": "CGROUP_ROOT", "value": node.root},
        {"name": "GPUSHARE_MOCK_NVML_MACHINE", "value": "/machine/machine"},
        {"name": "GPUSHARE_MOCK_NVML_STATE", "value": "/machine/state"},
    ]
    paths = {"machine": (IN_NODE, "/machine"), "cgroups": (node.root, node.root)}
    container["volumeMounts"] = [
        {"name": volume, "mountPath": inside} for volume, (_, inside) in paths.items()
    ]
    pod["spec"]["volumes"] = [
        {"name": volume, "hostPath": {"path": path}} for volume, (path, _) in paths.items()
    ]
    pod["spec"]["securityContext"] = {"runAsUser": 0}
    pod["metadata"]["annotations"] = {"gpushare/isolation": "driver", "gpushare/policy": "binpack"}
    return pod


def answers(case: Case, name: str) -> list[str]:
    """What the driver answered to the allocations of a pod."""
    return case.kubectl("logs", name, "-n", case.name).splitlines()


def wait_answers(case: Case, name: str, count: int) -> list[str]:
    """As :func:`answers`, once there are this many."""
    until(f"{name} allocates", lambda: len(answers(case, name)) >= count)
    return answers(case, name)


def more(case: Case, name: str, amount: int) -> str:
    """What the driver answers when a running pod allocates more GiB."""
    command = f'python3 -c "$ALLOCATE" {amount * GIB}'
    return case.kubectl("exec", name, "-n", case.name, "--", "sh", "-c", command).strip()


def test_a_limit_is_in_force_at_the_first_instruction_and_no_neighbour_feels_it(
    case: Case, node: LimitedNode
) -> None:
    """The pod is refused beyond its share at once; its neighbour on the GPU has all of its own."""
    greedy = allocating(case, node, "greedy", 4, 5, 4, 1)
    neighbour = allocating(case, node, "neighbour", 8, 8)
    case.create_running(greedy, neighbour)
    refused = ["5120 out of memory", "4096 allocated", "1024 out of memory"]
    assert wait_answers(case, "greedy", 3) == refused
    assert wait_answers(case, "neighbour", 1) == ["8192 allocated"]
    assert case.gpu("greedy") == case.gpu("neighbour")
    uids = [case.get(name)["metadata"]["uid"] for name in ("greedy", "neighbour")]
    assert [node.limit(uid) for uid in uids] == [(4, 4), (8, 8)]


@pytest.mark.since("1.30")
def test_a_pod_cannot_replace_the_limit_of_the_toolkit(case: Case, node: LimitedNode) -> None:
    """A ConfigMap sets the variables, which admission cannot read; CDI edits come last."""
    variables = ("NVIDIA_GPU_MEMORY_REQUEST", "NVIDIA_GPU_MEMORY_LIMIT")
    config = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "hostile", "namespace": case.name},
        "data": dict.fromkeys(variables, "99999"),
    }
    pod = allocating(case, node, "hostile", 4, 5, 4)
    (container,) = pod["spec"]["containers"]
    container["envFrom"] = [{"configMapRef": {"name": "hostile"}}]
    case.kubectl.apply(config)
    case.create_running(pod)
    env = case.env("hostile")
    assert [env[name] for name in variables] == ["4096", "4096"]
    assert wait_answers(case, "hostile", 2) == ["5120 out of memory", "4096 allocated"]


def test_a_limit_survives_the_plugin_and_a_change_by_others_is_noticed(
    environment: KindEnvironment, case: Case, node: LimitedNode
) -> None:
    """Another program takes it off: an event on the pod, and the limit is back."""
    case.create_running(allocating(case, node, "kept", 4, 3))
    assert wait_answers(case, "kept", 1) == ["3072 allocated"]
    plugin = plugin_pod(environment, node.name)
    environment.kubectl("delete", "pod", plugin, "-n", environment.namespace, "--wait=true")
    assert more(case, "kept", 2) == "2048 out of memory"
    plugins_run(environment)
    uid = case.get("kept")["metadata"]["uid"]
    cgroup = node.cgroup(uid)

    def noticed() -> list[str]:
        """The plugin reports a lost limit only where it has seen it in force before."""
        if node.limit(uid) == (4, 4):
            node.happens(f"gpu {case.gpu('kept')} memory_limit {NO_LIMIT} {cgroup}")
        return case.events("GpuLimitNotInForce", "kept")

    until("the pod has the event", noticed)
    until("the limit is back", lambda: node.limit(uid) == (4, 4))
    assert more(case, "kept", 2) == "2048 out of memory"


def why_waiting(case: Case, name: str) -> str:
    """The message of the container that waits; empty where none does."""
    states = case.get(name)["status"].get("containerStatuses", ())
    return " ".join(state["state"].get("waiting", {}).get("message", "") for state in states)


def test_a_plugin_that_looks_at_wrong_cgroups_notices_and_starts_nothing(
    case: Case, node: LimitedNode
) -> None:
    """The pod that runs has an event, its GPU loses the mode, and the next container waits."""
    case.create_running(allocating(case, node, "kept", 4, 3))
    with node.misled():
        until("the pod has the event", lambda: case.events("GpuLimitNotInForce", "kept"))
        assert (
            "its cgroup was not found on the node" in case.events("GpuLimitNotInForce", "kept")[0]
        )
        until("the GPU loses the mode", lambda: node.modes()[case.gpu("kept")] == "none")
        waiting = allocating(case, node, "waiting", 4, 4)
        del waiting["metadata"]["annotations"]["gpushare/isolation"]
        case.kubectl.apply(waiting)
        words = "the driver's memory limit of the pod is not in force"
        until("the next container waits", lambda: words in why_waiting(case, "waiting"))
    until("mode driver again", lambda: node.modes() == ["driver"] * 2)
    case.wait_running("waiting")
    assert wait_answers(case, "waiting", 1) == ["4096 allocated"]
    assert more(case, "kept", 2) == "2048 out of memory"


def test_a_pod_may_use_more_than_it_requests_up_to_its_limit(
    environment: KindEnvironment, case: Case, node: LimitedNode
) -> None:
    """The request is guaranteed and accounted for, the annotation is the most."""
    pod = allocating(case, node, "bursting", 4, 4, 2, 3, 2)
    pod["metadata"]["annotations"]["gpushare/memory-limit"] = "8"
    case.create_running(pod)
    expected = ["4096 allocated", "2048 allocated", "3072 out of memory", "2048 allocated"]
    assert wait_answers(case, "bursting", 4) == expected
    assert node.limit(case.get("bursting")["metadata"]["uid"]) == (4, 8)
    assert "4 (to 8)" in table.inspect(environment, "-d", node.name)


@pytest.mark.since("1.30")
def test_the_limit_of_a_running_pod_changes_without_a_restart(
    case: Case, node: LimitedNode
) -> None:
    """Never below its use, and only with the right to resize pods."""
    pod = allocating(case, node, "changing", 4, 4)
    pod["metadata"]["annotations"]["gpushare/memory-limit"] = "8"
    case.create_running(pod)
    assert wait_answers(case, "changing", 1) == ["4096 allocated"]
    uid = case.get("changing")["metadata"]["uid"]
    annotate(case, "changing", "10")
    until("10 GiB are in force", lambda: node.limit(uid) == (4, 10))
    assert more(case, "changing", 5) == "5120 allocated"
    annotate(case, "changing", "6")
    until("the pod has the event", lambda: case.events("GpuMemoryLimitNotLowered", "changing"))
    assert "the pod uses 9 GiB" in case.events("GpuMemoryLimitNotLowered", "changing")[0]
    assert node.limit(uid) == (4, 10)
    assert "10 GiB now, before 8 GiB" in case.events("GpuMemoryLimitChanged", "changing")[0]
    where = ("-n", case.name)
    verbs = ("--verb=get,update,patch", "--resource=pods")
    case.kubectl("create", "role", "editor", *where, *verbs)
    case.kubectl("create", "rolebinding", "editor", *where, "--role=editor", "--user=editor")
    with pytest.raises(KubectlError, match="who may update pods/resize"):
        annotate(case, "changing", "12", "--as=editor")


def annotate(case: Case, name: str, units: str, *flags: str) -> None:
    """Ask for another maximum of a running pod."""
    value = f"gpushare/memory-limit={units}"
    case.kubectl("annotate", "pod", name, "-n", case.name, value, "--overwrite", *flags)


def test_driver_and_mps_together_limit_memory_and_compute(case: Case, node: LimitedNode) -> None:
    """The driver refuses memory beyond the share; MPS has the share of threads, and no memory."""
    with node.labelled("driver-mps"):
        until("mode driver+mps", lambda: node.modes() == ["driver+mps"] * 2)
        pod = allocating(case, node, "both", 8, 9, 8)
        pod["metadata"]["annotations"]["gpushare/isolation"] = "mps"
        case.create_running(pod)
        assert wait_answers(case, "both", 2) == ["9216 out of memory", "8192 allocated"]
        env = case.env("both")
        units = node.units()
        assert env["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] == str(100 * 8 // units)
        assert "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT" not in env
        assert node.limit(case.get("both")["metadata"]["uid"]) == (8, 8)
        case.delete("both")
    until("mode driver again", lambda: node.modes() == ["driver"] * 2)


def test_an_old_driver_refuses_the_mode(environment: KindEnvironment, node: LimitedNode) -> None:
    """The node has an event with the reason, and its GPUs stay without the mode."""
    (other,) = environment.nodes.keys() - {node.name}
    environment.kubectl("label", "node", other, "gpushare/isolation=driver", "--overwrite")
    try:
        events = partial(environment.objects.events, fields="reason=GpuIsolation")
        until(
            "the node has the event",
            lambda: [each for each in events() if "is older than 615" in each["message"]],
        )
        annotations = environment.objects.node(other)["metadata"]["annotations"]
        assert '"mode":"driver"' not in annotations["gpushare/inventory"].replace(" ", "")
    finally:
        environment.kubectl("label", "node", other, "gpushare/isolation-")
