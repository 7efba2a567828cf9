"""cluster-autoscaler beside a control plane of processes, with its kwok provider.

The provider creates node objects from a template and nothing else. The Go module proxy has no
version of cluster-autoscaler, so its program is built by hand from its sources
(docs/autoscaling.md) and named in the variable ``CLUSTER_AUTOSCALER``.
"""

import json
import os
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any, Final, NamedTuple

from environments.controlplane import ControlPlane
from environments.processes import ChildProcess, free_port
from host.errors import SetupError
from host.waiting import until

PROGRAM: Final = "CLUSTER_AUTOSCALER"
NAMESPACE: Final = "kube-system"
GROUP_LABEL: Final = "node-group"
TEMPLATES: Final = "node-templates"
START_SECONDS: Final = 60
EVALUATIONS: Final = 'cluster_autoscaler_function_duration_seconds_count{function="main"}'

Object = dict[str, Any]


class ClusterAutoscaler(NamedTuple):
    """The program that runs."""

    process: ChildProcess
    port: int

    def evaluations(self) -> int:
        """Number of times that it has evaluated the cluster, by its own metric."""
        self.process.demand_alive()
        url = f"http://127.0.0.1:{self.port}/metrics"
        try:
            with urllib.request.urlopen(url, timeout=5) as answer:
                text = answer.read().decode()
        except (urllib.error.URLError, OSError):
            return 0
        counts = [line for line in text.splitlines() if line.startswith(EVALUATIONS)]
        return int(float(counts[0].rpartition(" ")[2])) if counts else 0

    def stop(self) -> None:
        """End it."""
        self.process.stop()


def named_program() -> Path:
    """The program that the variable names.

    Raises:
        SetupError: it names none.
    """
    program = Path(os.environ.get(PROGRAM, ""))
    if program.is_file():
        return program
    raise SetupError(
        f"{PROGRAM} names no program. cluster-autoscaler is not available from the Go module"
        " proxy: build it from its sources as docs/autoscaling.md shows, and set the variable"
        " to the path of the program."
    )


def start(plane: ControlPlane, template: Object, *, group: str) -> ClusterAutoscaler:
    """Start it with one group that has no nodes; returns when it evaluates the cluster.

    Args:
        template: a Node, ready and with its allocatable, as the nodes of the group will be.
        group: name of the group.

    Raises:
        SetupError: the variable names no program.
    """
    program = named_program()
    plane.kubectl.apply(*_configuration(template, group))
    port = free_port()
    argv: list[str | Path] = [
        program,
        f"--kubeconfig={plane.kubeconfig}",
        f"--namespace={NAMESPACE}",
        f"--address=127.0.0.1:{port}",
        "--leader-elect=false",
        "--scan-interval=1s",
        "--scale-down-enabled=false",
        "--v=2",
    ]
    environ = {
        "KWOK_PROVIDER_MODE": "local",
        "KUBECONFIG": str(plane.kubeconfig),
        "POD_NAMESPACE": NAMESPACE,
    }
    process = plane.start_program("cluster-autoscaler", argv, **environ)
    found = ClusterAutoscaler(process, port)
    until("cluster-autoscaler evaluates", found.evaluations, seconds=START_SECONDS)
    return found


def _configuration(template: Object, group: str) -> list[Object]:
    metadata = template["metadata"]
    labels = {**metadata.get("labels", {}), GROUP_LABEL: group}
    node = {**template, "metadata": {**metadata, "labels": labels}}
    templates = {"apiVersion": "v1", "kind": "List", "items": [node]}
    config = {
        "apiVersion": "v1alpha1",
        "readNodesFrom": "configmap",
        "nodegroups": {"fromNodeLabelKey": GROUP_LABEL},
        "nodes": {"skipTaint": True},
        "configmap": {"name": TEMPLATES},
    }
    return [
        _config_map("kwok-provider-config", config=json.dumps(config)),
        _config_map(TEMPLATES, templates=json.dumps(templates)),
    ]


def _config_map(name: str, **texts: str) -> Object:
    metadata = {"name": name, "namespace": NAMESPACE}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": texts}
