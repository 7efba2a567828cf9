"""Pods on a machine without Kubernetes: the container of each runs as a process.

With it the installed command ``gpushare verify`` proves the rows of its table on a bare node. The
GPU of a pod is chosen by the core's policies, as the extender does; its grant is the real plugin's.
Containers are plain processes here: no runtime adds device files, and no user or file system is
theirs.
"""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NamedTuple, Self

from gpucore.accounting.ledger import rebuilt
from gpucore.model import FitError
from gpucore.scheduling.policy import place
from gpucore.units import NodeName
from gpucore.wire.lists import decode_nodes, decode_pods
from gpucore.wire.names import DEFAULT_NAMES
from gpucore.wire.whole_requests import pod_request_of
from gpuprobe.checks import verdicts
from gpuprobe.names import FOLDER
from hardware.barenode import NODE, NODE_PATH, BareNode, bound_annotations
from hardware.clients import NO_PIPES
from hardware.grants import CORE, MEM, PIPES, VISIBLE, process_environment
from hardware.reports import NO_KUBERNETES, VerifyReport

Object = dict[str, Any]
COMMAND: Final = Path(sys.executable).parent / "gpushare"
END_SECONDS: Final = 30.0
VERIFY_SECONDS: Final = 600
ROWS: Final = tuple(row for row in verdicts.ROWS if row not in {"exclusive", "start"})
"""Those that need no container runtime and no second GPU."""


class PodProcesses(NamedTuple):
    """The processes of a pod, the container's first, and ``namespace/name``."""

    name: str
    processes: tuple[subprocess.Popen[bytes], ...]


class BarePods:
    """Runs the pods that are created on a bare node; use as a context, which ends them.

    Args:
        node: without other pods.
        root: a folder for logs and for what containers of a pod exchange.
    """

    def __init__(self, node: BareNode, root: Path) -> None:
        self._node, self._root = node, root
        self._running: dict[str, PodProcesses] = {}
        self._lock = threading.RLock()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._follow, args=(node.api.version,))

    def __enter__(self) -> Self:
        api, offered = self._node.api, self._node.kubelet.devices
        amounts = {resource: str(len(devices)) for resource, devices in offered.items()}
        api.patch(NODE_PATH, {"status": {"capacity": amounts, "allocatable": amounts}})
        api.objects["/version"] = {"gitVersion": NO_KUBERNETES}
        api.before_delete = self._end
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join(END_SECONDS)
        for path in list(self._running):
            self._end(path)

    def _follow(self, version: int) -> None:
        while not self._ended.is_set():
            version, changes = self._node.api.after(version, "pods")
            for kind, item in changes:
                if kind == "ADDED" and item["spec"]["containers"][0].get("command"):
                    self._begin(item)
            self._report()

    def _begin(self, pod: Object) -> None:
        meta, (container,) = pod["metadata"], pod["spec"]["containers"]
        path = f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}"
        name = f"{meta['namespace']}/{meta['name']}"
        limits = container["resources"].get("limits", {})
        if MEM in limits and not self._bind(path, pod):
            return
        env = {each["name"]: each["value"] for each in container["env"]}
        for resource in (MEM, CORE):
            if resource in limits:
                amount = int(limits[resource])
                given = self._node.kubelet.admit(name, resource, amount, container="probe")
                env |= given.envs
        with self._lock:
            if path not in self._node.api.objects:  # deleted meanwhile
                self._node.kubelet.release(name)
                return
            self._run(path, name, container, env)

    def _bind(self, path: str, pod: Object) -> bool:
        """Choose the GPU as the extender does, and write what its bind writes."""
        api = self._node.api
        nodes = decode_nodes(_listed([api.objects[NODE_PATH]])).items
        pods = decode_pods(_listed(api.items("pods"))).items
        own = decode_pods(_listed([pod])).items[0]
        node_info = rebuilt(DEFAULT_NAMES, nodes, pods).node(NodeName(NODE))
        request = pod_request_of(own, DEFAULT_NAMES)
        assert node_info is not None
        assert request is not None
        placed = place(node_info, request)
        if isinstance(placed, FitError):
            api.patch(path, {"status": {"phase": "Pending", "message": str(placed)}})
            return False
        ((gpu, units),) = placed.mem.items()
        notes = bound_annotations(gpu, units, self._node.gpus()[gpu].units)
        api.patch(path, {"metadata": {"annotations": notes}, "spec": {"nodeName": NODE}})
        return True

    def _run(self, path: str, name: str, container: Object, granted: Mapping[str, str]) -> None:
        uid = self._node.api.objects[path]["metadata"]["uid"]
        exchange = self._root / uid
        exchange.mkdir()
        env = _environment({**granted, FOLDER: str(exchange)})
        log = self._root / f"{uid}.log"
        self._node.api.logs[path] = log
        probe = container.get("startupProbe")
        with log.open("wb") as out:
            started = [_started(container["command"], env, out.fileno())]
        if probe:
            started.append(_started(probe["exec"]["command"], env, subprocess.DEVNULL))
        for each in started:
            self._node.contain(each.pid, path)
        self._running[path] = PodProcesses(name, tuple(started))
        self._node.api.patch(path, {"status": {"phase": "Running"}, "spec": {"nodeName": NODE}})

    def _report(self) -> None:
        """Tell the API server which pods have ended."""
        with self._lock:
            for path, pod in self._running.items():
                code = pod.processes[0].poll()
                running = self._node.api.objects[path]["status"]["phase"] == "Running"
                if code is not None and running:
                    phase = "Failed" if code else "Succeeded"
                    self._node.api.patch(path, {"status": {"phase": phase}})

    def _end(self, path: str) -> None:
        """End the processes of a pod and give its devices back; before the pod is gone."""
        with self._lock:
            pod = self._running.pop(path, None)
            if pod is None:
                return
            for process in pod.processes:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait(END_SECONDS)
            self._node.kubelet.release(pod.name)


def verified(node: BareNode, root: Path, rows: Sequence[str] = ROWS) -> VerifyReport:
    """The report of ``gpushare verify`` on a bare node.

    Args:
        root: an empty folder.
        rows: their names.
    """
    kubeconfig = node.api.kubeconfig(root)
    argv = [str(COMMAND), "verify", "-o", "json", "--only", ",".join(rows), "--image", "none"]
    argv += ["--kubeconfig", str(kubeconfig), "--timeout", str(VERIFY_SECONDS)]
    with BarePods(node, root):
        done = subprocess.run(
            argv, capture_output=True, text=True, check=False, timeout=2 * VERIFY_SECONDS
        )
    assert done.stdout, done.stderr
    report: VerifyReport = json.loads(done.stdout)
    return report


def _environment(own: Mapping[str, str]) -> dict[str, str]:
    """The variables of a container, and of this process what is not about GPUs."""
    inherited = {k: v for k, v in os.environ.items() if not k.startswith(("CUDA_", "NVIDIA_"))}
    env = inherited | {PIPES: NO_PIPES} | dict(own)
    return process_environment(env) if VISIBLE in env else env


def _started(command: list[str], env: Mapping[str, str], out: int) -> subprocess.Popen[bytes]:
    """A process group with a command, whose interpreter is that of this process."""
    argv = [sys.executable, *command[1:]]
    return subprocess.Popen(
        argv, env=dict(env), stdout=out, stderr=subprocess.STDOUT, start_new_session=True
    )


def _listed(items: list[Object]) -> bytes:
    return json.dumps({"metadata": {"resourceVersion": "1"}, "items": items}).encode()
