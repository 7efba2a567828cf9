"""The whole stack as processes on loopback: control plane, extender, and three GPU nodes.

Of every node there are the real device plugin on a mock driver and the kubelet of
:mod:`chaos.kubelet`. Every process can be killed and started again with the same command line.
"""

import sys
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from bench import inpod
from bench.subject import COMMAND, PREFIX
from chaos.grants import NodeGrants
from environments import machines
from environments.controlplane import ControlPlane
from environments.processes import ChildProcess, free_port
from host.waiting import until
from mocknvml import build

NODES: Final = {
    "small-a": "t4-2x16",
    "small-b": "t4-2x16",
    "large": "a100-pcie-4x40",
}
"""The mock machine of each node."""
SCHEDULER: Final = "chaos"
START_SECONDS: Final = 90
PLUGIN: Final = COMMAND.with_name("gpushare-device-plugin")
_NODE_TYPES: Final = ("plugin", "kubelet")


class StackPart(NamedTuple):
    """A process that may be killed.

    Attributes:
        kind: of which there are the same figures, such as ``plugin``.
        node: of plugin and kubelet; empty for the others.
    """

    kind: str
    node: str = ""

    def __str__(self) -> str:
        return f"{self.kind} of {self.node}" if self.node else self.kind


class StackRig:
    """Starts everything in :meth:`start`; :meth:`stop` ends it.

    Attributes:
        plane: etcd and the API server.
        machines: memory units of each GPU by UUID, by node.
        extender_url: of its port.
    """

    def __init__(self) -> None:
        self.plane = ControlPlane()
        self.machines = {
            node: {gpu.uuid: gpu.units for gpu in machines.gpus(machine)}
            for node, machine in NODES.items()
        }
        self._port = free_port()
        self.extender_url = f"http://127.0.0.1:{self._port}"
        self._own: dict[StackPart, ChildProcess] = {}

    def start_control_plane(self) -> None:
        """Etcd and the API server."""
        self.plane.start()
        for process in self.plane.processes:
            self._own[StackPart(process.name)] = process

    def start_stack(self) -> None:
        """Extender, scheduler, kubelets and plugins; the node objects exist."""
        self._own[StackPart("extender")] = self._extender()
        for node, machine in NODES.items():
            root = self.plane.folder / node
            root.mkdir()
            self._own[StackPart("kubelet", node)] = self._kubelet(node, root)
            self._own[StackPart("plugin", node)] = self._plugin(node, machine, root)
        until("the extender is ready", self.extender_ready, seconds=START_SECONDS)
        url = f"{self.extender_url}{PREFIX}"
        self._own[StackPart("scheduler")] = self.plane.scheduler(url, name=SCHEDULER)

    def stop(self) -> None:
        """End everything that was started."""
        self.plane.stop()

    @property
    def parts(self) -> list[StackPart]:
        """All that may be killed."""
        return list(self._own)

    def kill(self, part: StackPart) -> None:
        """As a crash would."""
        self._own[part].kill()

    def start_again(self, part: StackPart) -> None:
        """As kubelet or systemd would."""
        self._own[part].revive()

    def ended(self) -> Iterator[StackPart]:
        """Processes that do not run, though nobody killed them."""
        return (part for part, process in self._own.items() if not process.alive())

    def pids(self) -> dict[str, int]:
        """Process ids by name."""
        return {str(part): process.pid for part, process in self._own.items()}

    def log(self, part: StackPart) -> str:
        """The end of the part's log."""
        return self._own[part].log.read_text(errors="replace")[-2000:]

    def grants(self) -> Mapping[str, NodeGrants]:
        """What the containers of each node have now."""
        return {node: NodeGrants.read(self.plane.folder / node / "grants.json") for node in NODES}

    def extender_ready(self) -> bool:
        """Whether its ``/readyz`` answers 200."""
        return self.read(f"{self.extender_url}/readyz") is not None

    @staticmethod
    def read(url: str) -> str | None:
        """Body of a GET; None where there is no answer or it is a refusal."""
        try:
            with urllib.request.urlopen(url, timeout=5) as answer:
                content: bytes = answer.read()
                return content.decode()
        except (urllib.error.URLError, OSError):
            return None

    def _extender(self) -> ChildProcess:
        command = [str(COMMAND), "--port", str(self._port), "--host", "127.0.0.1"]
        environ = inpod.environ(self.plane)
        argv = inpod.argv(self.plane, command)
        return self.plane.start_program("extender", argv, LOG_LEVEL="warn", **environ)

    def _kubelet(self, node: str, root: Path) -> ChildProcess:
        token = self.plane.folder / "serviceaccount" / "token"
        argv: list[str | Path] = [sys.executable, "-m", "chaos.kubelet"]
        argv += [node, root, self.plane.url, token]
        e2e = str(Path(__file__).parents[1])
        return self.plane.start_program(f"kubelet-{node}", argv, PYTHONPATH=e2e)

    def _plugin(self, node: str, machine: str, root: Path) -> ChildProcess:
        text = build.machine(machine).read_text().partition("[processes]")[0]
        (root / "machine").write_text(text)
        (root / "proc").mkdir()
        flags: dict[str, Any] = {
            "--node-name": node,
            "--kubelet-dir": root / "device-plugins",
            "--pod-resources-socket": root / "pod-resources.sock",
            "--listen-host": "127.0.0.1",
            "--listen-port": free_port(),
            "--host-proc": root / "proc",
            "--cdi-dir": root / "cdi",
        }
        command = [str(PLUGIN), *(str(word) for flag in flags.items() for word in flag)]
        environ = dict(inpod.environ(self.plane)) | {
            "LD_LIBRARY_PATH": str(build.ensure()),
            "GPUSHARE_MOCK_NVML_MACHINE": str(root / "machine"),
            "USAGE_SECONDS": "30",
        }
        return self.plane.start_program(
            f"plugin-{node}", inpod.argv(self.plane, command), **environ
        )


def node_object(name: str) -> dict[str, Any]:
    """A node as a kubelet registers it, before any plugin came."""
    amounts = {"cpu": "64", "memory": "512Gi", "pods": "250"}
    labels = {"kubernetes.io/hostname": name, "gpushare": "true", "gputopology": "true"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels},
        "status": {
            "capacity": amounts,
            "allocatable": amounts,
            "conditions": [{"type": "Ready", "status": "True", "reason": "ChaosNode"}],
        },
    }
