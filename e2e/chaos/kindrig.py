"""The whole stack on a kind cluster: real kubelets and containerd, the chart, two GPU nodes.

A part is killed as a process of its node. kubelet starts containers again and systemd starts
kubelet again; that is what brings the part back, and nothing here does. What containers have is
read from the processes on the nodes and from kubelet's checkpoint.
"""

import random
import subprocess
from collections.abc import Iterator, Mapping
from typing import Any, Final

from chaos import nodegrants
from chaos.grants import NodeGrants
from chaos.invariants import Machines
from chaos.objects import pod_object
from chaos.rig import StackPart
from environments.kind import KindEnvironment
from environments.waiting import until

LOAD_PART: Final = 0.5
"""Of the units of all GPUs, what the pods of the load request together."""
READ_SECONDS: Final = 60
KILL_SECONDS: Final = 60
PROCESSES: Final = {
    "etcd": "^etcd --",
    "kube-apiserver": "^kube-apiserver --",
    "scheduler": "^kube-scheduler .*/gpushare/",
    "extender": "[/]gpushare-extender --host=127.0.0.1 ",
    "plugin": "/gpushare-device-plugin ",
    "kubelet": "^/usr/bin/kubelet ",
}
"""What identifies a process by its command line."""
SHORT_BACK_OFF: Final = r"""
cd /var/lib/kubelet
sed -i '/^crashLoopBackOff: {}$/d' config.yaml
printf 'crashLoopBackOff:\n  maxContainerRestartPeriod: 1s\n' >> config.yaml
systemctl restart kubelet
"""
"""kubelet would wait for up to five minutes before it starts a part that is killed repeatedly."""
EXTENDER_NODES: Final = (
    "pid=$(pgrep -f '{process}' | head -n 1);"
    ' [ -n "$pid" ] && exec nsenter -t "$pid" -n'
    " curl -sf --max-time 5 http://127.0.0.1:{port}/api/v1/nodes"
)
LEASE: Final = "/apis/coordination.k8s.io/v1/namespaces/{}/leases/gpushare-scheduler"
ACCOUNT: Final = "chaos"
PORT: Final = 39999
"""Of the extender, as the chart has it."""


class KindRig:
    """The parts of a started environment.

    Args:
        environment: a cluster of its own: kills and a changed kubelet configuration are no good for
            other cases.

    Attributes:
        machines: memory units of each GPU by UUID, by node.
        units: that the pods of the load request together.
        step_seconds: between two changes of the load.
        lease: path of the scheduler's Lease.
    """

    step_seconds = 1.0

    def __init__(self, environment: KindEnvironment) -> None:
        self._environment = environment
        self._random = random.Random(0)
        self.machines: Machines = {
            node: {gpu.uuid: gpu.units for gpu in gpus} for node, gpus in environment.nodes.items()
        }
        self.units = int(LOAD_PART * sum(sum(gpus.values()) for gpus in self.machines.values()))
        self.parts = [
            *map(StackPart, ("etcd", "kube-apiserver", "scheduler", "extender")),
            *(StackPart(kind, node) for kind in ("plugin", "kubelet") for node in self.machines),
        ]
        self.lease = LEASE.format(environment.namespace)
        self.url, self.token = self._access()
        for node in (environment.control_plane, *self.machines):
            environment.on_node(node, SHORT_BACK_OFF)
        scheduler = environment.values["scheduler"] | {"leaderElection": {}}
        environment.install(environment.values | {"scheduler": scheduler})
        environment.wait_ready()

    def _access(self) -> tuple[str, str]:
        """Address of the API server, and a token for all of it."""
        kubectl = self._environment.kubectl
        kubectl("create", "serviceaccount", ACCOUNT, "-n", "kube-system")
        owner = f"--serviceaccount=kube-system:{ACCOUNT}"
        kubectl("create", "clusterrolebinding", ACCOUNT, "--clusterrole=cluster-admin", owner)
        where = "jsonpath={.clusters[0].cluster.server}"
        url = kubectl("config", "view", "--minify", "-o", where)
        return url, kubectl(
            "create", "token", ACCOUNT, "-n", "kube-system", "--duration=12h"
        ).strip()

    def kill(self, part: StackPart) -> None:
        """End its process, or that of one replica."""
        words = ["pkill", "-KILL", "-f", PROCESSES[part.kind]]

        def killed() -> bool:
            nodes = self._nodes(part)
            return any(not self._attempt(node, words).returncode for node in nodes)

        until(f"{part} runs and is killed", killed, seconds=KILL_SECONDS)

    def start_again(self, part: StackPart) -> None:
        """Nothing to do: kubelet and systemd start it."""

    def ended(self) -> Iterator[StackPart]:
        """None: what ends is started again at once."""
        return iter(())

    def log(self, part: StackPart) -> str:
        """Empty: no part is found ended."""
        del part
        return ""

    def grants(self) -> Mapping[str, NodeGrants]:
        """What the containers of each node have now."""
        return {
            node: nodegrants.decode(self._environment.on_node(node, nodegrants.SCRIPT))
            for node in self.machines
        }

    def extender_nodes(self) -> str | None:
        """``/api/v1/nodes`` of an extender; None where none answers."""
        port = self._environment.values.get("extender", {}).get("port", PORT)
        script = EXTENDER_NODES.format(process=PROCESSES["extender"], port=port)
        for node in self.machines:
            answer = self._attempt(node, ["sh", "-c", script])
            if not answer.returncode:
                return answer.stdout
        return None

    def generation(self, node: Mapping[str, Any]) -> str:
        """Process ids of the node's kubelet and plugin."""
        name = node["metadata"]["name"]
        pids = (
            self._attempt(name, ["pgrep", "-f", PROCESSES[kind]]).stdout.split()
            for kind in ("plugin", "kubelet")
        )
        return str(list(pids))

    def pod(self, name: str, containers: list[dict[str, int]], *, seconds: int = 0) -> Any:
        """A pod for the scheduler, whose containers sleep."""
        pod = pod_object(name, containers)
        pod["spec"]["schedulerName"] = "gpushare-scheduler"
        script = f"sleep {seconds or 'infinity'}"
        for container in pod["spec"]["containers"]:
            container |= {
                "image": self._environment.image,
                "imagePullPolicy": "Never",
                "command": ["sh", "-c", f"exec {script}"],
                "env": [{"name": nodegrants.CONTAINER, "value": container["name"]}],
            }
        return pod

    def _nodes(self, part: StackPart) -> list[str]:
        if part.node:
            return [part.node]
        if part.kind in {"etcd", "kube-apiserver"}:
            return [self._environment.control_plane]
        return self._random.sample(sorted(self.machines), len(self.machines))

    def _attempt(self, node: str, words: list[str]) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["docker", "exec", node, *words],
            capture_output=True,
            text=True,
            timeout=READ_SECONDS,
            check=False,
        )
