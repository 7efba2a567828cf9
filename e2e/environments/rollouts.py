"""Whether the pods of Deployments and DaemonSets are there, by the pods themselves.

`kubectl rollout status` goes by the status of the workload, which a controller writes: just after a
pod was deleted or a node was stopped, the status is that of before. So the pods are counted too.
"""

from functools import partial

from environments import podfaults
from environments.kubectl import Kubectl, Object
from environments.waiting import until

_STATUS_SECONDS = 15
"""Between looks at the pods, which may wait for what never comes."""


def wait(kubectl: Kubectl, namespace: str, *, labels: str = "") -> None:
    """Wait until every workload is rolled out, all its pods are ready, and no old pod is left.

    Args:
        labels: a selector of workloads; all of the namespace by default.

    Raises:
        PodFaultError: the image of a pod is missing on its node.
    """
    chosen = ("-n", namespace, "-l", labels) if labels else ("-n", namespace)
    workloads = kubectl.items("deployments,daemonsets", *chosen)
    for item in workloads:
        name = f"{item['kind'].lower()}/{item['metadata']['name']}"
        until(f"{name} is rolled out", partial(_rolled_out, kubectl, item))
        until(f"all pods of {name} are ready", partial(_complete, kubectl, item))


def _rolled_out(kubectl: Kubectl, workload: Object) -> bool:
    meta = workload["metadata"]
    name = f"{workload['kind'].lower()}/{meta['name']}"
    where = ("-n", meta["namespace"])
    done = kubectl.attempt("rollout", "status", name, *where, f"--timeout={_STATUS_SECONDS}s")
    if done.returncode == 0:
        return True
    podfaults.demand_images(_pods(kubectl, workload))
    return False


def _complete(kubectl: Kubectl, workload: Object) -> bool:
    meta = workload["metadata"]
    where = ("-n", meta["namespace"])
    now = kubectl.json("get", workload["kind"].lower(), meta["name"], *where)
    pods = _pods(kubectl, now)
    podfaults.demand_images(pods)
    return complete(now, pods)


def _pods(kubectl: Kubectl, workload: Object) -> list[Object]:
    labels = workload["spec"]["selector"]["matchLabels"]
    selector = ",".join(f"{key}={value}" for key, value in labels.items())
    return kubectl.items("pods", "-n", workload["metadata"]["namespace"], "-l", selector)


def complete(workload: Object, pods: list[Object]) -> bool:
    """Whether these are the pods that the workload wants, all ready and none on its way out."""
    status = workload.get("status", {})
    if workload["kind"] == "DaemonSet":
        wanted = status.get("desiredNumberScheduled", 0)
    else:
        wanted = workload["spec"]["replicas"]
    live = [pod for pod in pods if pod["status"]["phase"] not in {"Failed", "Succeeded"}]
    return len(live) == wanted and all(map(_settled, live))


def _settled(pod: Object) -> bool:
    """Ready, and not being deleted."""
    ready = {"type": "Ready", "status": "True"}.items()
    conditions = pod["status"].get("conditions", ())
    return "deletionTimestamp" not in pod["metadata"] and any(
        ready <= condition.items() for condition in conditions
    )
