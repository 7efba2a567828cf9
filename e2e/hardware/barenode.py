"""A GPU node without Kubernetes: the real plugin on the real driver, a kubelet and an API server.

Both ends of the plugin are fakes of this suite; the plugin is the installed command. A share is
taken as a pod would take it: a pod object with the scheduler's annotations, kubelet's questions,
and a process with the environment that the plugin answered.
"""

import json
import os
import sys
import urllib.request
import uuid
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple, Self

from environments.processes import ChildProcess, free_port
from hardware.clients import Client
from hardware.fakeapi import FakeApi
from hardware.fakedevicemanager import DeviceRefusedError, FakeDeviceManager
from hardware.grants import (
    INVENTORY,
    MEM,
    MPS,
    PublishedGpu,
    ShareSize,
    gpus,
    process_environment,
)
from host.waiting import DeadlineError, until

NODE: Final = "bare"
NODE_PATH: Final = f"/api/v1/nodes/{NODE}"
COMMAND: Final = Path(sys.executable).parent / "gpushare-device-plugin"
READY_SECONDS: Final = 240
ANSWER_SECONDS: Final = 60
INDEX: Final = "ALIYUN_COM_GPU_MEM_IDX"
LABELS: Final = {"gpushare": "true", "gputopology": "true"}


class PodShare(NamedTuple):
    """A share that a pod has: the pod's name and its container's environment."""

    pod: str
    envs: dict[str, str]


class BareNode:
    """The node; use as a context.

    Args:
        root: a folder of its own, not too deep: sockets are made in it.
        mps: shares are kept apart by MPS daemons of the plugin, else the GPU slices time.
        env: more variables for the plugin's process.
    """

    unit_mib: int = 1024

    def __init__(self, root: Path, *, mps: bool, env: Mapping[str, str] | None = None) -> None:
        self.mps = mps
        self.root = root
        self.api = FakeApi()
        self.kubelet = FakeDeviceManager(root)
        self.port = free_port()
        self._env = os.environ | dict(env or {})
        self._proc = root / "proc"
        self._stack = ExitStack()
        self._plugin: ChildProcess | None = None

    def __enter__(self) -> Self:
        self._stack.enter_context(self.api)
        self._stack.enter_context(self.kubelet)
        self.api.put(NODE_PATH, _node())
        self._proc.mkdir()
        self._plugin = ChildProcess(
            "plugin", [COMMAND, *self._flags()], folder=self.root, env=self._env
        )
        self._stack.callback(self._plugin.stop)
        try:
            until("kubelet is offered shares", self._offered, seconds=READY_SECONDS)
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _flags(self) -> list[str]:
        flags = {
            "--node-name": NODE,
            "--kubelet-dir": self.kubelet.directory,
            "--pod-resources-socket": self.kubelet.pod_resources,
            "--kubeconfig": self.api.kubeconfig(self.root),
            "--listen-host": "127.0.0.1",
            "--listen-port": self.port,
            "--host-proc": self._proc,
            "--memory-unit": f"{self.unit_mib}MiB",
        }
        mps = ["--mps", "--mps-root", str(self.root / "mps")] if self.mps else []
        return [str(word) for flag in flags.items() for word in flag] + mps

    def _offered(self) -> bool:
        assert self._plugin is not None
        self._plugin.demand_alive()
        return bool(self.kubelet.healthy(MEM)) and INVENTORY in self._annotations()

    def _annotations(self) -> dict[str, str]:
        found: dict[str, str] = self.api.objects[NODE_PATH]["metadata"].get("annotations", {})
        return found

    @property
    def log(self) -> str:
        """What the plugin has reported so far."""
        return (self.root / "plugin.log").read_text(errors="replace")

    def gpus(self) -> tuple[PublishedGpu, ...]:
        """As the plugin has published them."""
        return gpus(self._annotations()[INVENTORY])

    def wait_for_mps(self, uuid: str) -> None:
        """Return when a GPU is behind its daemon; DeadlineError with the plugin's log if not."""
        try:
            until(
                f"{uuid} is behind MPS",
                lambda: any(
                    gpu.uuid == uuid and gpu.mode == MPS and gpu.healthy for gpu in self.gpus()
                ),
                seconds=READY_SECONDS,
            )
        except DeadlineError as error:
            raise DeadlineError(f"{error}\n{self.log[-3000:]}") from error

    def events(self) -> list[dict[str, Any]]:
        """Events that the plugin has written."""
        return self.api.items("events")

    @contextmanager
    def share(self, share: ShareSize, *, gpu: int = 0) -> Iterator["PodShare"]:
        """Take a share as one pod, and give it back at the end.

        Raises:
            DeviceRefusedError: kubelet or the plugin refuses, or grants another GPU.
        """
        name = f"share-{uuid.uuid4().hex[:8]}"
        path = f"/api/v1/namespaces/default/pods/{name}"
        self.api.put(path, _pod(name, share, gpu, self.gpus()[gpu].units))
        try:
            envs: dict[str, str] = {}
            for resource, amount in share.limits().items():
                envs |= self.kubelet.admit(f"default/{name}", resource, amount).envs
            if envs[INDEX] != str(gpu):
                raise DeviceRefusedError(f"a share of GPU {gpu} is granted on GPU {envs[INDEX]}")
            yield PodShare(name, envs)
        finally:
            self.kubelet.release(f"default/{name}")
            self.api.delete(path)

    @contextmanager
    def client(self, share: ShareSize, *, gpu: int = 0) -> Iterator[Client]:
        """A CUDA program on a share of its own, which the plugin finds in its pod."""
        with (
            self.share(share, gpu=gpu) as held,
            Client.local(process_environment(held.envs)) as client,
        ):
            self.contain(client.pid, f"/api/v1/namespaces/default/pods/{held.pod}")
            client.pod = held.pod
            yield client

    def contain(self, pid: int, pod: str) -> None:
        """Write the control group that a process would have in a container of the pod at a path."""
        uid = self.api.objects[pod]["metadata"]["uid"]
        folder = self._proc / str(pid)
        folder.mkdir()
        (folder / "cgroup").write_text(f"0::/kubepods/burstable/pod{uid}/main\n")

    def metrics(self) -> str:
        """The plugin's metrics, as Prometheus would read them."""
        address = f"http://127.0.0.1:{self.port}/metrics"
        with urllib.request.urlopen(address, timeout=ANSWER_SECONDS) as answer:
            content: bytes = answer.read()
        return content.decode()


def _node() -> dict[str, Any]:
    meta = {"name": NODE, "uid": str(uuid.uuid4()), "labels": LABELS, "annotations": {}}
    ready = [{"type": "Ready", "status": "True"}]
    status = {"capacity": {}, "allocatable": {}, "conditions": ready}
    return {"apiVersion": "v1", "kind": "Node", "metadata": meta, "status": status}


def bound_annotations(gpu: int, units: int, total: int) -> dict[str, str]:
    """What the extender's bind writes for a share of ``units`` of a GPU that has ``total``."""
    return {
        INDEX: str(gpu),
        "ALIYUN_COM_GPU_MEM_DEV": str(total),
        "ALIYUN_COM_GPU_MEM_POD": str(units),
        "ALIYUN_COM_GPU_MEM_ASSIGNED": "false",
        "ALIYUN_COM_GPU_MEM_ASSUME_TIME": "1700000000000000000",
        "scheduler.framework.gpushare.allocation": json.dumps({"0": {str(gpu): units}}),
    }


def _pod(name: str, share: ShareSize, gpu: int, units: int) -> dict[str, Any]:
    """Bound to the node, with what the extender's bind would have written."""
    limits = {resource: str(amount) for resource, amount in share.limits().items()}
    container = {"name": "main", "resources": {"limits": limits, "requests": limits}}
    return {
        "metadata": {
            "uid": str(uuid.uuid4()),
            "namespace": "default",
            "name": name,
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "annotations": bound_annotations(gpu, share.units, units),
            "labels": {},
        },
        "spec": {"nodeName": NODE, "containers": [container]},
        "status": {"phase": "Pending"},
    }
