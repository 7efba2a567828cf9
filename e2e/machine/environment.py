"""The stack with one node, a machine in QEMU: the control plane and the extender run beside it.

kubelet, containerd and the device plugin of the chart are in the machine. Of the chart only the
DaemonSet gets pods, because its Deployments have no replicas.
"""

import json
import shutil
import tempfile
import urllib.request
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from bench import inpod
from bench.subject import COMMAND, PREFIX
from environments import helm, machines
from environments.controlplane import SCHEDULER_NAME, ControlPlane, unverified
from environments.environment import MachineGpu, UnavailableError
from environments.kind import CHART, COMMANDS, GPU_MEM, NAMESPACE, RELEASE
from environments.kubectl import Kubectl
from environments.objects import Objects
from environments.processes import ChildProcess, free_port
from environments.waiting import until
from host.errors import SetupError
from host.progress import step
from images import build as images
from machine import inputs, nodefiles
from machine.inputs import MachineInputs
from machine.kubeadm import Kubeadm
from machine.nodefiles import DISCOVERY, JOIN, KUBELET_FLAGS, NODE
from machine.qemu import GATEWAY, Qemu

MACHINE: Final = "h100-r615-2x80"
"""The mock machine of the node by default: a driver that limits memory."""
START_SECONDS: Final = 300
"""From a shell in the machine to a Ready node."""
JOIN_SECONDS: Final = 900
KUBELET: Final[Mapping[str, Any]] = {"nodeStatusUpdateFrequency": "2s"}
"""What differs from kubeadm's defaults and from kubelet's own, such as failCgroupV1."""
_CONTROLLERS: Final = (
    "certificatesigningrequest-approving-controller",
    "certificatesigningrequest-signing-controller",
    "daemonset-controller",
    "deployment-controller",
    "garbage-collector-controller",
    "job-controller",
    "namespace-controller",
    "node-lifecycle-controller",
    "pod-garbage-collector-controller",
    "replicaset-controller",
    "root-ca-certificate-publisher-controller",
    "serviceaccount-controller",
    "taint-eviction-controller",
)


class MachineEnvironment:
    """See :class:`environments.environment.Environment`.

    Args:
        files: more files of this run, by their paths in the machine without the first slash; they
            are laid there at every boot before anything else starts.
        values: more values of the chart.
        mock: the mock machine whose GPUs the node has; see :mod:`mocknvml.build`.

    Attributes:
        machine: the node, with its power and a shell.
    """

    def __init__(
        self,
        *,
        files: Mapping[str, Path] | None = None,
        values: Mapping[str, Any] | None = None,
        mock: str = MACHINE,
    ) -> None:
        self._files, self._values, self._mock = files or {}, values or {}, mock
        self.namespace = NAMESPACE
        self.nodes: Mapping[str, tuple[MachineGpu, ...]] = {NODE: machines.gpus(mock)}
        self._folder = Path(tempfile.mkdtemp(prefix="gpushare-machine-"))
        self._kubelet_port = free_port()
        self._stoppable: list[Qemu | ControlPlane] = []

    def start(self) -> None:
        """Bring all of it up.

        Raises:
            UnavailableError: this machine lacks something; the sentence states what.
        """
        try:
            found = inputs.ensure()
        except SetupError as reason:
            raise UnavailableError(str(reason)) from reason
        self.image, self.modelserver = found.built.sample, found.built.modelserver
        self._kubeadm = Kubeadm(found.version, self._folder, GATEWAY)
        self._kubeadm.make_certificates()
        self.plane = ControlPlane(found.version, pki=self._kubeadm.pki)
        self._stoppable.append(self.plane)
        self._start_control_plane()
        self.machine = self._machine(found)
        with step("boot the machine"):
            self.machine.power_on()
        with step("have kubeadm join it to the cluster"):
            self.machine.shell(f"kubeadm join --config={JOIN}", seconds=JOIN_SECONDS)
        with step("install the chart"):
            self.install(_merged(_values(found.built), self._values))
        with step("wait for the stack"):
            until("the node is Ready", self.node_ready, seconds=START_SECONDS)
            self.wait_ready()

    def stop(self) -> None:
        """End all of it, the machine first."""
        for each in reversed(self._stoppable):
            each.stop()
        shutil.rmtree(self._folder, ignore_errors=True)

    def install(self, values: dict[str, Any]) -> None:
        """Install or upgrade the chart."""
        self.values = values
        helm.install(RELEASE, CHART, NAMESPACE, values, self.plane.kubeconfig)

    def node_ready(self) -> bool:
        """Whether kubelet has registered the node and reports it as Ready."""
        for node in self.objects.nodes():
            conditions = {each["type"]: each for each in node["status"].get("conditions", ())}
            return bool(conditions.get("Ready", {}).get("status") == "True")
        return False

    def wait_ready(self) -> None:
        """Wait until the plugin runs and the node offers its units."""
        total = str(sum(gpu.units for gpu in self.nodes[NODE]))
        until("the node is Ready", self.node_ready)
        until("the plugin is ready", self._plugin_ready)
        until("the node offers its units", lambda: self._allocatable() == total)

    def kubelet_config(self) -> dict[str, Any]:
        """The configuration that kubelet has in force, defaults included."""
        url = f"https://127.0.0.1:{self._kubelet_port}/configz"
        request = urllib.request.Request(
            url, headers={"Authorization": f"Bearer {self.plane.token}"}
        )
        with urllib.request.urlopen(request, timeout=60, context=unverified()) as answer:
            found: dict[str, Any] = json.load(answer)["kubeletconfig"]
        return found

    def journal(self, lines: int = 40) -> str:
        """The end of the machine's log; empty where it does not answer."""
        with suppress(SetupError):
            return self.machine.shell(f"journalctl --no-pager -n {lines}", seconds=60)
        return ""

    @property
    def version(self) -> tuple[int, int]:
        """Major and minor version of Kubernetes."""
        major, minor, *_ = map(int, self.plane.version.split("."))
        return major, minor

    def described(self) -> str:
        """Kubernetes version and where the node runs."""
        return f"Kubernetes {self.plane.version}, one node in QEMU"

    def plugin_pods(self) -> list[dict[str, Any]]:
        """Pods of the device plugin, those that end included."""
        labels = "app.kubernetes.io/component=device-plugin"
        return self.objects.pods(self.namespace, labels=labels)

    def _plugin_ready(self) -> bool:
        pods = self.plugin_pods()
        states = [state for pod in pods for state in pod["status"].get("containerStatuses", ())]
        return len(pods) == 1 and bool(states) and all(state["ready"] for state in states)

    def _allocatable(self) -> str:
        status: dict[str, Any] = self.objects.node(NODE)["status"]
        return str(status["allocatable"].get(GPU_MEM, ""))

    def _start_control_plane(self) -> None:
        self.plane.start()
        plain = self.plane.kubectl
        self.kubectl = Kubectl(plain.binary, plain.kubeconfig, path=(COMMANDS,))
        config = self._verifying()
        self.objects = Objects(config)
        self._kubeadm.prepare(self.plane, config, {**KUBELET, "port": self._kubelet_port})
        self.plane.controllers(*_CONTROLLERS)
        self.plane.scheduler(None, name="default-scheduler")
        self.plane.scheduler(f"{self._extender()}{PREFIX}", name=SCHEDULER_NAME)

    def _verifying(self) -> Path:
        """A kubeconfig that names the certificate of the API server's authority."""
        config = json.loads(self.plane.kubeconfig.read_text())
        server = {"server": self.plane.url, "certificate-authority": str(self.plane.authority)}
        config["clusters"][0]["cluster"] = server
        file = self._folder / "kubeconfig"
        file.write_text(json.dumps(config))
        return file

    def _extender(self) -> str:
        port = free_port()
        argv: Sequence[str] = [str(COMMAND), "--port", str(port), "--host", "127.0.0.1"]
        environ = inpod.environ(self.plane)
        command = inpod.argv(self.plane, argv)
        process: ChildProcess = self.plane.start_program("extender", command, **environ)
        until("the extender has started", process.alive)
        return f"http://127.0.0.1:{port}"

    def _machine(self, found: MachineInputs) -> Qemu:
        port = self._kubelet_port
        join = self._kubeadm.join_configuration(NODE, DISCOVERY, KUBELET_FLAGS)
        files = nodefiles.write(
            self._folder,
            machine=self._mock,
            key=Qemu.make_key(self._folder),
            port=self.plane.port,
            texts={JOIN: join, DISCOVERY: self._kubeadm.discovery(self.plane)},
            more=self._files,
        )
        machine = Qemu(
            found.disk, self._folder, base=found.loaded, seeds=(files,), ports={port: port}
        )
        self._stoppable.append(machine)
        return machine


def _merged(values: Mapping[str, Any], more: Mapping[str, Any]) -> dict[str, Any]:
    """Values with others over them, as Helm merges two files."""
    inner = {
        name: _merged(values[name], value)
        for name, value in more.items()
        if isinstance(value, dict) and isinstance(values.get(name), dict)
    }
    return {**values, **more, **inner}


def _values(built: images.Built) -> dict[str, Any]:
    """Values of the chart: mode driver is offered, and the mock library is mounted."""
    repository, _, tag = built.deviceplugin.rpartition(":")
    return {
        "image": {"registry": "local"},
        # The extender runs beside the machine.
        "scheduler": {"replicas": 0},
        "monitoring": {"tls": {"enabled": False}},
        "webhook": {"enabled": False},
        "driverLimits": {"enabled": True, "checkSeconds": 1},
        "devicePlugin": {
            "image": {"repository": repository, "tag": tag},
            "extraArgs": ["--probe-seconds=1", "--reconcile-seconds=5"],
            "nvml": {"hostPath": machines.LIBRARY_IN_NODE},
            "extraEnv": [
                {"name": "GPUSHARE_MOCK_NVML_MACHINE", "value": "/machine/machine"},
                {"name": "GPUSHARE_MOCK_NVML_STATE", "value": "/machine/state"},
            ],
            "extraVolumes": [{"name": "machine", "hostPath": {"path": machines.IN_NODE}}],
            "extraVolumeMounts": [{"name": "machine", "mountPath": "/machine"}],
        },
    }
