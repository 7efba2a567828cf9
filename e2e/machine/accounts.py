"""What kubelet has allocated in the machine, beside the annotations of the pods of a case."""

from environments import podresources
from environments.case import Case
from environments.kind import GPU_MEM
from environments.kubectl import KubectlError
from environments.waiting import until
from environments.workloads import Object
from machine.environment import MachineEnvironment
from machine.nodefiles import NODE


def sharing(case: Case, name: str, units: int) -> Object:
    """A pod with a share that is packed onto a GPU in use."""
    pod = case.pod(name, units)
    pod["metadata"]["annotations"] = {"gpushare/policy": "binpack"}
    return pod


def replicas(case: Case, name: str, units: int, count: int) -> Object:
    """A ReplicaSet of pods with equal shares: kubelet fails pods that it admits too early."""
    deployment = case.deployment(name, units, replicas=count)
    template = deployment["spec"]["template"]
    template["metadata"]["annotations"] = {"gpushare/policy": "binpack"}
    return {**deployment, "kind": "ReplicaSet"}


def requested(pod: Object) -> int:
    """Units of its only container."""
    (container,) = pod["spec"]["containers"]
    return int(container["resources"]["limits"][GPU_MEM])


def lives(case: Case, *names: str) -> list[tuple[str, int]]:
    """Container ids and restarts: what a disturbed pod cannot keep."""
    states = [state for name in names for state in case.get(name)["status"]["containerStatuses"]]
    return [(state["containerID"], state["restartCount"]) for state in states]


def plugin_lives(environment: MachineEnvironment) -> list[tuple[str, int]]:
    """The same of the containers of the plugin."""
    states = [
        state for pod in environment.plugin_pods() for state in pod["status"]["containerStatuses"]
    ]
    return [(state["containerID"], state["restartCount"]) for state in states]


def registered(environment: MachineEnvironment) -> None:
    """Wait until kubelet runs and serves the plugin's resource."""
    environment.wait_ready()
    total = sum(gpu.units for gpu in environment.nodes[NODE])
    until("the plugin is registered", lambda: podresources.allocatable(environment, NODE) == total)


def plugin_log(environment: MachineEnvironment, *flags: str) -> str:
    """What the plugin has logged."""
    pod = podresources.plugin_pod(environment, NODE)
    return environment.kubectl("logs", pod, "-n", environment.namespace, *flags)


def restart_plugin(environment: MachineEnvironment) -> None:
    """Delete the pod of the plugin and wait until the next one is registered."""
    pod = podresources.plugin_pod(environment, NODE)
    environment.kubectl("delete", "pod", pod, "-n", environment.namespace, "--wait=true")
    registered(environment)


def end_plugin(environment: MachineEnvironment) -> None:
    """Have the plugin end; returns when kubelet has started its container again."""
    before = plugin_lives(environment)
    environment.machine.shell("kill -TERM $(pgrep -f '[g]pushare-device-plugin --kubelet-dir')")
    until("the plugin has ended", lambda: plugin_lives(environment) != before)
    registered(environment)


def used(environment: MachineEnvironment) -> list[int]:
    """Units that kubelet has allocated of each GPU."""
    sums = dict.fromkeys((gpu.uuid for gpu in environment.nodes[NODE]), 0)
    for held in podresources.allocated(environment, NODE):
        for uuid, units in held.gpus.items():
            sums[uuid] += units
    return list(sums.values())


def agree(environment: MachineEnvironment, case: Case) -> bool:
    """Each running pod has from kubelet the GPU of its annotation, and no GPU has too many."""
    uuids = {gpu.index: gpu.uuid for gpu in environment.nodes[NODE]}
    held = {
        each.pod: set(each.gpus)
        for each in podresources.allocated(environment, NODE)
        if each.namespace == case.name
    }
    live = [pod["metadata"]["name"] for pod in case.pods() if pod["status"]["phase"] == "Running"]
    sizes = [gpu.units for gpu in environment.nodes[NODE]]
    assert all(amount <= size for amount, size in zip(used(environment), sizes, strict=True))
    return bool(live) and all(held.get(name) == {uuids[case.gpu(name)]} for name in live)


def started(environment: MachineEnvironment, case: Case, name: str, count: int) -> bool:
    """So many pods of a ReplicaSet run, all since the machine has booted, and accounts agree."""
    booted = environment.machine.shell("uptime -s").strip().replace(" ", "T") + "Z"
    pods = {pod["metadata"]["name"]: pod for pod in case.pods()}
    states = [
        state
        for each in case.running(name)
        for state in pods[each]["status"].get("containerStatuses", ())
    ]
    times = [state["state"].get("running", {}).get("startedAt", "") for state in states]
    if len(times) != count or min(times) < booted:
        return False
    try:
        return agree(environment, case)
    except KubectlError:  # the plugin's pod has not started yet
        return False


def fill(environment: MachineEnvironment, case: Case) -> None:
    """Pods get exactly what is free on each GPU, and no unit more."""
    sizes = [gpu.units for gpu in environment.nodes[NODE]]
    free = [size - amount for size, amount in zip(sizes, used(environment), strict=True)]
    pods = [sharing(case, f"rest-{i}", units) for i, units in enumerate(free) if units]
    case.run_in_turn(*sorted(pods, key=requested, reverse=True))
    until("all units are allocated", lambda: used(environment) == sizes)
    case.kubectl.apply(sharing(case, "too-many", 1))
    until("one more is refused", lambda: case.events("FailedScheduling", "too-many"))
    until("annotations agree with kubelet", lambda: agree(environment, case))
