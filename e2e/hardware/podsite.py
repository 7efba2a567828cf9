"""Shares as pods of a real cluster: placed by its scheduler, granted by its kubelet.

The stack must be installed there. The CUDA program is carried in a ConfigMap and started by
``kubectl exec``; the image only has to bring Python, the driver's library comes from the container
runtime. Everything is made in a namespace of its own, which goes with the site.
"""

import base64
import json
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, Self

from environments.kubectl import Kubectl
from environments.workloads import SCHEDULER
from hardware import program
from hardware.clients import Client
from hardware.grants import INVENTORY, MPS, PublishedGpu, ShareSize, gpus
from hardware.presence import NoGpuError
from host.waiting import until

START_SECONDS: Final = 300
"""For a pod: the image may have to be pulled."""

IDX: Final = "ALIYUN_COM_GPU_MEM_IDX"
_FOLDER: Final = "/client"
_CONFIG_MAP: Final = "cuda-client"


class PodSite:
    """One GPU node of a cluster; use as a context.

    Args:
        kubeconfig: of the cluster.
        image: with ``python`` on its PATH.
        runtime_class: of the pods, where the nodes' default runtime brings no driver.

    Attributes:
        node: name of the first node with a healthy GPU that is not cut.
        mps: whether that GPU is behind an MPS daemon.
        unit_mib: MiB of one unit there.
    """

    def __init__(self, kubeconfig: Path, image: str, *, runtime_class: str = "") -> None:
        found = shutil.which("kubectl")
        if found is None:
            raise NoGpuError("kubectl is not on PATH")
        self.kubectl = Kubectl(Path(found), kubeconfig)
        self.namespace = f"gpushare-hardware-{secrets.token_hex(3)}"
        self._image = image
        self._runtime = {"runtimeClassName": runtime_class} if runtime_class else {}
        self.node, self.gpu, self.unit_mib = _first_gpu(self.kubectl)
        self.mps = self.gpu.mode == MPS

    def __enter__(self) -> Self:
        self.kubectl("create", "namespace", self.namespace)
        self._apply(_config_map())
        return self

    def __exit__(self, *_: object) -> None:
        self.kubectl("delete", "namespace", self.namespace, "--wait=false")

    def _apply(self, item: dict[str, Any]) -> None:
        self.kubectl("apply", "-n", self.namespace, "-f", "-", stdin=json.dumps(item))

    def gpus(self) -> tuple[PublishedGpu, ...]:
        """The node's annotation has them now."""
        node = json.loads(self.kubectl("get", "node", self.node, "-o", "json"))
        return gpus(node["metadata"]["annotations"][INVENTORY])

    @contextmanager
    def client(self, share: ShareSize, *, gpu: int = 0) -> Iterator[Client]:
        """A CUDA program in a pod; the scheduler must put it on that GPU, or the site is no use.

        Raises:
            NoGpuError: the pod got another GPU, since this one has no room.
        """
        name = f"share-{secrets.token_hex(3)}"
        pod = _pod(name, share, self.node, self._image)
        self._apply(pod | {"spec": pod["spec"] | self._runtime})
        try:
            until(f"pod {name} runs", lambda: self._running(name), seconds=START_SECONDS)
            got = self._placed(name)
            if got != str(gpu):
                raise NoGpuError(f"the scheduler chose GPU {got}, and GPU {gpu} was meant")
            with Client(self._exec(name), self.kubectl.environment) as client:
                client.pod = name
                yield client
        finally:
            self.kubectl("delete", "pod", name, "-n", self.namespace, "--grace-period=1")

    def _exec(self, pod: str) -> list[str]:
        argv = [str(self.kubectl.binary), "exec", "-i", "-n", self.namespace, pod, "--"]
        return [*argv, "python", f"{_FOLDER}/{program.NAME}"]

    def _get(self, pod: str) -> dict[str, Any]:
        found = self.kubectl("get", "pod", pod, "-n", self.namespace, "-o", "json")
        item: dict[str, Any] = json.loads(found)
        return item

    def _running(self, pod: str) -> bool:
        return bool(self._get(pod)["status"].get("phase") == "Running")

    def _placed(self, pod: str) -> str:
        return str(self._get(pod)["metadata"]["annotations"].get(IDX, "?"))


def _first_gpu(kubectl: Kubectl) -> tuple[str, PublishedGpu, int]:
    """Node, GPU and MiB of a unit. Raises UnavailableError where no node has a GPU for us."""
    for node in json.loads(kubectl("get", "nodes", "-o", "json"))["items"]:
        text = node["metadata"].get("annotations", {}).get(INVENTORY, "")
        for gpu in gpus(text) if text else ():
            if gpu.healthy and gpu.mode != "mig":
                return node["metadata"]["name"], gpu, gpu.memory_mib // max(gpu.units, 1)
    raise NoGpuError(f"no node of this cluster has a healthy GPU in {INVENTORY}")


def _config_map() -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": _CONFIG_MAP},
        "binaryData": {program.NAME: base64.b64encode(program.archive()).decode()},
    }


def _pod(name: str, share: ShareSize, node: str, image: str) -> dict[str, Any]:
    container = {
        "name": "main",
        "image": image,
        "command": ["sleep", "3600"],
        "resources": {"limits": {key: str(value) for key, value in share.limits().items()}},
        "volumeMounts": [{"name": "client", "mountPath": _FOLDER}],
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {
            "schedulerName": SCHEDULER,
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 1,
            "nodeSelector": {"kubernetes.io/hostname": node},
            "tolerations": [{"operator": "Exists"}],
            "containers": [container],
            "volumes": [{"name": "client", "configMap": {"name": _CONFIG_MAP}}],
        },
    }
