"""Whether the pods of Deployments and DaemonSets are there, by the pods themselves.

`kubectl rollout status` goes by the status of the workload, which a controller writes: just after a
pod was deleted or a node was stopped, the status is that of before. So the pods are counted too.
"""

from functools import partial

from environments.kubectl import Kubectl, Object
from environments.waiting import PATIENCE_SECONDS, until


def wait(kubectl: Kubectl, namespace: str, *, labels: str = "") -> None:
    """Wait until every workload is rolled out, all its pods are ready, and no old pod is left.

    Args:
        labels: a selector of workloads; all of the namespace by default.
    """
    chosen = ("-n", namespace, "-l", labels) if labels else ("-n", namespace)
    workloads = kubectl.items("deployments,daemonsets", *chosen)
    for item in workloads:
        name = f"{item['kind'].lower()}/{item['metadata']['name']}"
        limit = f"--timeout={PATIENCE_SECONDS}s"
        kubectl("rollout", "status", name, "-n", namespace, limit)
        until(f"all pods of {name} are ready", partial(_complete, kubectl, item))


def _complete(kubectl: Kubectl, workload: Object) -> bool:
    meta = workload["metadata"]
    where = ("-n", meta["namespace"])
    now = kubectl.json("get", workload["kind"].lower(), meta["name"], *where)
    labels = now["spec"]["selector"]["matchLabels"]
    selector = ",".join(f"{key}={value}" for key, value in labels.items())
    pods = kubectl.items("pods", *where, "-l", selector)
    return complete(now, pods)


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
