"""The whole stack as processes on loopback: control plane, extender, and three GPU nodes.

Of every node there are the real device plugin on a mock driver and the kubelet of
:mod:`chaos.kubelet`. Every process can be killed and started again with the same command line.
"""

import sys
import urllib.error
import urllib.request
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol

from bench import inpod
from bench.subject import COMMAND, PREFIX
from chaos.grants import NodeGrants
from chaos.invariants import Machines
from chaos.objects import SCHEDULER, pod_object
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


class Rig(Protocol):
    """A running stack whose parts can be killed.

    Attributes:
        machines: memory units of each GPU by UUID, by node.
        units: that the pods of the load request together.
        step_seconds: between two changes of the load.
        lease: path of the scheduler's Lease; empty without leader election.
    """

    machines: Machines
    units: int
    step_seconds: float
    lease: str

    @property
    def parts(self) -> Sequence[StackPart]:
        """All that may be killed."""
        ...

    def kill(self, part: StackPart) -> None:
        """As a crash would."""
        ...

    def start_again(self, part: StackPart) -> None:
        """As kubelet or systemd would, where they do not."""
        ...

    def ended(self) -> Iterable[StackPart]:
        """Parts that do not run, though nobody killed them."""
        ...

    def log(self, part: StackPart) -> str:
        """The end of the part's log."""
        ...

    def grants(self) -> Mapping[str, NodeGrants]:
        """What the containers of each node have now."""
        ...

    def extender_nodes(self) -> str | None:
        """``/api/v1/nodes`` of the extender; None where it does not answer."""
        ...

    def generation(self, node: Mapping[str, Any]) -> str:
        """Changes when the kubelet or the plugin of a node start again."""
        ...

    def pod(
        self, name: str, containers: list[dict[str, int]], *, seconds: int = 0
    ) -> dict[str, Any]:
        """A pod for the scheduler with these amounts by container.

        Args:
            seconds: it ends by itself after so many; 0: never.
        """
        ...


class StackRig:
    """Starts everything in :meth:`start`; :meth:`stop` ends it.

    Attributes:
        plane: etcd and the API server.
        machines: memory units of each GPU by UUID, by node.
        extender_url: of its port.
        units: that the pods of the load request together, of 190 that the three nodes have.
        step_seconds: between two changes of the load.
    """

    units = 120
    step_seconds = 0.3
    lease = ""

    def __init__(self) -> None:
        self.plane = ControlPlane()
        self.machines: Machines = {
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
            self._own[StackPart("kubelet", node)] = self.kubelet(node, root)
            self._own[StackPart("plugin", node)] = self.plugin(node, machine, root)
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

    def extender_nodes(self) -> str | None:
        """``/api/v1/nodes`` of the extender; None where it does not answer."""
        return self.read(f"{self.extender_url}/api/v1/nodes")

    @staticmethod
    def generation(node: Mapping[str, Any]) -> str:
        """The kubelet's process id and its registrations."""
        ready = next(one for one in node["status"]["conditions"] if one["type"] == "Ready")
        return str(ready.get("message", ""))

    @staticmethod
    def pod(name: str, containers: list[dict[str, int]], *, seconds: int = 0) -> dict[str, Any]:
        """A pod for the scheduler."""
        return pod_object(name, containers, seconds=seconds)

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

    def kubelet(self, node: str, root: Path) -> ChildProcess:
        """Start the kubelet of a node, whose sockets are below ``root``."""
        token = self.plane.folder / "serviceaccount" / "token"
        argv: list[str | Path] = [sys.executable, "-m", "chaos.kubelet"]
        argv += [node, root, self.plane.url, token]
        e2e = str(Path(__file__).parents[1])
        return self.plane.start_program(f"kubelet-{node}", argv, PYTHONPATH=e2e)

    def plugin(
        self,
        node: str,
        machine: str,
        root: Path,
        program: Sequence[str] = (str(PLUGIN),),
        *,
        usage_seconds: int = 30,
        **variables: str,
    ) -> ChildProcess:
        """Start the device plugin of a node with the GPUs of a mock machine.

        Args:
            program: the command without its flags.
            variables: added to its environment.
        """
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
        command = [*program, *(str(word) for flag in flags.items() for word in flag)]
        environ = {
            **variables,
            **inpod.environ(self.plane),
            "LD_LIBRARY_PATH": str(build.ensure()),
            "GPUSHARE_MOCK_NVML_MACHINE": str(root / "machine"),
            "USAGE_SECONDS": str(usage_seconds),
        }
        return self.plane.start_program(
            f"plugin-{node}", inpod.argv(self.plane, command), **environ
        )
