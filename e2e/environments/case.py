"""One case's own part of the cluster: a namespace, its pods, and what can be read of them."""

import json
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from environments import podfaults, workloads
from environments.environment import Environment
from environments.kubectl import KubectlError, Object
from environments.waiting import PATIENCE_SECONDS, until

GPU = "ALIYUN_COM_GPU_MEM_IDX"

POD_WORKERS_SINCE = (1, 22)
"""The first kubelet that starts nothing of a pod that was deleted by force.

One before may take the end of the pod's sandbox for a failure: it makes the sandbox again, and
tries to allocate the pod's units anew, which the next pod may have been promised.
"""


class Case:
    """A namespace that comes with the case and goes with it.

    Args:
        environment: the cluster.
        name: of the namespace.
    """

    def __init__(self, environment: Environment, name: str) -> None:
        self.environment = environment
        self.kubectl = environment.kubectl
        self.objects = environment.objects
        self.name = name
        self.namespaces = (name,)

    def open(self) -> None:
        """Create the namespace, with the service account that pods need."""
        self.kubectl.apply(workloads.namespace(self.name))
        until(
            f"the default service account of {self.name}",
            lambda: self._exists("serviceaccount", "default"),
        )

    def close(self) -> None:
        """Delete all of it and wait until its pods, and so its shares, are gone.

        By force, since nobody here waits to see an end; but not where kubelet then allocates the
        units of the deleted pod again. The namespace itself follows in its own time: its controller
        is in no hurry, but makes sure of what a controller made meanwhile.
        """
        kinds, where = "deployments,replicasets,statefulsets,jobs,pods", ("--all", "-n", self.name)
        force = (
            () if self.environment.version < POD_WORKERS_SINCE else ("--grace-period=0", "--force")
        )
        self.kubectl("delete", kinds, *where, *force, "--wait=false")
        self.kubectl("delete", "namespace", self.name, "--wait=false")
        until("the case's pods are gone", lambda: not self.pods())

    def pod(
        self,
        name: str,
        *units: int,
        node: str | None = None,
        resource: str = workloads.GPU_MEM,
        labels: Mapping[str, str] | None = None,
    ) -> Object:
        """A pod of this case, not created yet; one container for each of ``units``."""
        return workloads.pod(
            name,
            units,
            namespace=self.name,
            image=self.environment.image,
            node=node,
            resource=resource,
            labels=labels,
        )

    def job(
        self,
        name: str,
        units: int,
        *,
        node: str,
        script: str,
        resource: str = workloads.GPU_MEM,
    ) -> Object:
        """A Job of this case, not created yet."""
        return workloads.job(
            name,
            units,
            namespace=self.name,
            image=self.environment.image,
            node=node,
            script=script,
            resource=resource,
        )

    def deployment(
        self, name: str, units: int, *, replicas: int, node: str | None = None
    ) -> Object:
        """A Deployment of this case, not created yet."""
        image = self.environment.image
        return workloads.deployment(
            name, units, replicas=replicas, namespace=self.name, image=image, node=node
        )

    def running(self, app: str) -> list[str]:
        """Names of the running pods of a Deployment."""
        found = self.objects.pods(self.name, labels=f"app={app}")
        return [pod["metadata"]["name"] for pod in found if pod["status"]["phase"] == "Running"]

    def create_running(self, *pods: Object) -> None:
        """Create pods all at once and wait until each is running."""
        self.kubectl.apply(*pods)
        self.wait_running(*(pod["metadata"]["name"] for pod in pods))

    def run_in_turn(self, *pods: Object) -> None:
        """Create pods, each once the one before has its GPUs, and wait until all are running."""
        names = [pod["metadata"]["name"] for pod in pods]
        for name, pod in zip(names, pods, strict=True):
            self.kubectl.apply(pod)
            until(f"a node for {name}", partial(self.node, name))
        self.wait_running(*names)

    def node(self, name: str) -> str:
        """The node that a pod was given, and with it its GPUs; empty before."""
        return str(self.get(name)["spec"].get("nodeName", ""))

    def wait_running(self, *names: str) -> None:
        """Wait until these pods have all their containers running."""
        until(f"pods {', '.join(names)} running", lambda: self._all_ready(names))

    def wait_available(self, deployment: str) -> None:
        """Wait until a Deployment has all its replicas."""
        limit = f"--timeout={PATIENCE_SECONDS}s"
        self.kubectl("rollout", "status", f"deployment/{deployment}", "-n", self.name, limit)

    def ready(self, name: str) -> bool:
        """True when every container of the pod runs; an end of the pod is an error at once."""
        return _ready(self.get(name))

    def gpus(self) -> dict[str, int]:
        """Of every pod that has one, the index of the GPU, as :meth:`gpu` returns it."""
        annotations = {
            pod["metadata"]["name"]: pod["metadata"].get("annotations", {}) for pod in self.pods()
        }
        return {name: int(each[GPU]) for name, each in annotations.items() if GPU in each}

    def get(self, name: str) -> Object:
        """The pod as the API server has it."""
        return self.objects.pod(name, self.name)

    def pods(self) -> list[Object]:
        """All pods of the case."""
        return self.objects.pods(self.name)

    def annotations(self, name: str) -> dict[str, str]:
        """Annotations of a pod."""
        found: dict[str, str] = self.get(name)["metadata"].get("annotations", {})
        return found

    def gpu(self, name: str) -> int:
        """Index of the GPU the pod's first-generation annotation names."""
        return int(self.annotations(name)[GPU])

    def env(self, name: str, container: str = "c0") -> dict[str, str]:
        """The environment a process in the container has."""
        text = self.kubectl("exec", name, "-n", self.name, "-c", container, "--", "env")
        return dict(line.split("=", 1) for line in text.splitlines() if "=" in line)

    def delete(self, *names: str) -> None:
        """Delete pods and wait until they are gone."""
        self.kubectl("delete", "pod", *names, "-n", self.name, "--wait=true")

    def events(self, reason: str, name: str) -> list[str]:
        """Messages of a pod's events of one reason."""
        found = self.objects.events(self.name)
        return [
            event["message"]
            for event in found
            if event["reason"] == reason and event["involvedObject"].get("name") == name
        ]

    def _all_ready(self, names: Sequence[str]) -> bool:
        """All of them at one glance."""
        pods = {pod["metadata"]["name"]: pod for pod in self.pods()}
        return all(_ready(pods[name]) for name in names)

    def _exists(self, kind: str, name: str) -> Any:
        try:
            return self.kubectl.json("get", kind, name, "-n", self.name)
        except KubectlError:
            return None


def _ready(pod: Object) -> bool:
    """Every container of the pod runs.

    Raises:
        AssertionError: the pod has ended, or its node lacks an image.
    """
    podfaults.demand_images([pod])
    status = pod["status"]
    if status["phase"] in {"Failed", "Succeeded"}:
        raise AssertionError(f"pod {pod['metadata']['name']} ended: {json.dumps(status)}")
    states = status.get("containerStatuses", ())
    return bool(states) and all(state["ready"] for state in states)
