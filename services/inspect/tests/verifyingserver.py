"""A cluster that runs the pods of ``gpushare verify``: as processes, on the stand-in for CUDA.

The scheduler is the core's policies, kubelet's grant is the core's, and the driver is
``e2e/standins/cuda``: what a container sees comes from the same code as on a node.
"""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import uuid
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from drawncluster import FakeCluster
from fakeapiserver import FakeApiServer

from gpucore.accounting.ledger import rebuilt
from gpucore.model import FitError
from gpucore.node.allocation.device_ids import Resource
from gpucore.node.grant import GrantPolicy, grant
from gpucore.node.isolation.mps_grant import MpsPlace
from gpucore.scheduling.policy import place
from gpucore.wire.lists import decode_nodes, decode_pods
from gpucore.wire.names import DEFAULT_NAMES, ENV_VISIBLE_DEVICES
from gpucore.wire.whole_requests import pod_request_of
from gpukube.testing.plugin_pods import plugin_pod
from gpuprobe.names import LIBRARY, NVML

Object = dict[str, Any]
NODES, PODS = "/api/v1/nodes", "/api/v1/pods"
REVIEWS: Final = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
GPU_MIB: Final = 16 * 1024
CONTEXT_MIB: Final = 100
_POD: Final = re.compile(r"/api/v1/namespaces/([^/]+)/pods/([^/]+)(/log)?$")


class VerifyingServer(FakeApiServer):
    """Nodes from a drawn cluster, and pods that run.

    Args:
        cluster: nodes, and pods that hold shares already.
        folder: of the stand-in driver.
        cuda_driver: folder of its ``libcuda.so.1``.

    Attributes:
        created: paths of what was created, in order; ``gone`` of what was deleted.
        jobs: what was created of them.
        denied: rights that are refused, as ``verb resource``.
        misplaced: UUIDs that a wrong CDI file gives in place of others.
        limits: whether the driver has the limits of pods.
        cdi: the runtime adds GPUs as CDI devices, and hides that from the variables.
        refused: a variable with which no pod is accepted, by a policy.
        clock: time of its clock.
        gpu_mib: memory of each GPU.
        runtime: whether containers get the GPU that their variable names, without a share.
        before: called with each pod before it is created; ``after`` once it runs.
    """

    def __init__(self, cluster: FakeCluster, folder: Path, cuda_driver: Path) -> None:
        nodes = [item for item in cluster.items if item["kind"] == "Node"]
        pods = [item for item in cluster.items if item["kind"] == "Pod"]
        empty: dict[str, list[Object]] = {
            "/api/v1/namespaces/kube-system/configmaps": [],
            "/apis/resource.k8s.io/v1/resourceslices": [],
            "/apis/resource.k8s.io/v1/resourceclaims": [],
        }
        super().__init__({NODES: nodes, PODS: pods, **empty}, page=100)
        self.objects["/version"] = {"gitVersion": "v1.36.2"}
        self.folder, self.cuda_driver = folder, cuda_driver
        (folder / "cuda").mkdir(parents=True)
        (folder / "lib").mkdir()
        (folder / "lib" / NVML).symlink_to(cuda_driver / LIBRARY)
        (folder / "state").write_text("")
        self.created: list[str] = []
        self.gone: list[str] = []
        self.jobs: list[Object] = []
        self.denied: set[str] = set()
        self.misplaced: dict[str, str] = {}
        self.limits = True
        self.gpu_mib = GPU_MIB
        self.clock = "2026-01-02T03:04:05Z"
        self.runtime = True
        self.cdi = False
        self.refused = ""
        self.before: Callable[[Object], None] = lambda _: None
        self.after: Callable[[Object], None] = lambda _: None
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._mps: socket.socket | None = None
        self._binding = threading.Lock()
        for node in nodes:
            self._real_uuids(node)
        pods.extend(_plugin(node["metadata"]["name"]) for node in nodes)

    def _real_uuids(self, node: Object) -> None:
        notes = node["metadata"]["annotations"]
        inventory = json.loads(notes["gpushare/inventory"])
        for gpu in inventory["gpus"]:
            gpu["uuid"] = f"GPU-{uuid.uuid4()}"
        notes["gpushare/inventory"] = json.dumps(inventory)

    def serve_mps(self) -> None:
        """An MPS daemon that accepts clients."""
        path = self.folder / "mps"
        for node in self.lists[NODES]:
            inventory = json.loads(node["metadata"]["annotations"]["gpushare/inventory"])
            for gpu in inventory["gpus"]:
                (path / gpu["uuid"] / "pipe").mkdir(parents=True)
        self._mps = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._mps.bind(str(path / "control"))
        self._mps.listen(64)

    def faults(self, *words: str) -> None:
        """What is broken in the driver."""
        (self.folder / "cuda" / "faults").write_text(" ".join(words))

    def close(self) -> None:
        """End every container."""
        for process in self._running.values():
            _end(process)
        if self._mps is not None:
            self._mps.close()

    def posted(self, path: str, body: Object) -> tuple[int, Object]:
        """A review, or an object; a pod begins to run."""
        if path == REVIEWS:
            asked = body["spec"]["resourceAttributes"]
            what = "/".join(filter(None, (asked["resource"], asked["subresource"])))
            allowed = f"{asked['verb']} {what}" not in self.denied
            return 201, {"status": {"allowed": allowed}}
        if self.refused and f'"{self.refused}"' in json.dumps(body):
            return 422, {"message": f"a container sets {self.refused}"}
        meta = body["metadata"]
        meta |= {"uid": str(uuid.uuid4()), "creationTimestamp": self.clock}
        at = f"{path}/{meta['name']}"
        if body["kind"] == "Pod":
            self.before(body)
            with self._binding:
                self._start(body)
                self.lists[PODS].append(body)
            self.after(body)
        elif body["kind"] == "Job":
            self.jobs.append(body)
        self.created.append(at)
        self.objects[at] = body
        return 201, body

    def _start(self, pod: Object) -> None:
        if not pod["spec"]["containers"][0]["resources"]["limits"]:
            self._start_without_share(pod)
            return
        inventory, index, units, node = self._bind(pod)
        if index is None:
            pod["status"] = {"phase": "Pending", "conditions": [_unschedulable()]}
            return
        meta, (container,) = pod["metadata"], pod["spec"]["containers"]
        gpu = inventory.gpus[index]
        mps = MpsPlace(str(self.folder / "mps")) if gpu.isolation.uses_mps else None
        granted = grant(Resource.MEM, {index: units}, inventory, GrantPolicy(mps=mps))
        core = container["resources"]["limits"].get("aliyun.com/gpu-core.percentage")
        env = dict(granted.envs) | ({"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": core} if core else {})
        if mps is not None:
            env["CUDA_MPS_PIPE_DIRECTORY"] = str(self.folder / "mps")
        if gpu.isolation.uses_driver and self.limits:
            most = int(meta["annotations"].get("gpushare/memory-limit", units)) * 1024
            self._limit(meta["uid"], index, most)
        env |= {ENV_VISIBLE_DEVICES: "void"} if self.cdi else {}
        env |= {f"FAKECUDA_GPU_{index}": self.misplaced.get(gpu.uuid, gpu.uuid)}
        self._run(meta, container, env)
        pod["status"] = {"phase": "Running"}
        pod["spec"]["nodeName"] = node

    def _start_without_share(self, pod: Object) -> None:
        """A container of the NVIDIA runtime: it gets the GPU that its variable names."""
        (container,) = pod["spec"]["containers"]
        (visible,) = [
            each["value"] for each in container["env"] if each["name"] == ENV_VISIBLE_DEVICES
        ]
        self._run(pod["metadata"], container, {"FAKECUDA_GPU_0": visible} if self.runtime else {})
        pod["status"] = {"phase": "Running"}

    def _run(self, meta: Object, container: Object, own: dict[str, str]) -> None:
        name, exchange = meta["name"], self.folder / meta["uid"]
        exchange.mkdir()
        env = own | {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": os.pathsep.join(sys.path),  # the sources that the test runs with
            "LD_LIBRARY_PATH": f"{self.cuda_driver}:{self.folder / 'lib'}",
            "GPUPROBE_FOLDER": str(exchange),
            "FAKECUDA_ROOT": str(self.folder),
            "FAKECUDA_POD": meta["uid"],
            "FAKECUDA_MIB": str(self.gpu_mib),
            "FAKECUDA_CONTEXT_MIB": str(CONTEXT_MIB),
        }
        argv = [sys.executable, *container["command"][1:]]
        with (self.folder / f"{name}.log").open("wb") as log:
            self._running[name] = subprocess.Popen(
                argv, env=env, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
            )
        if probe := container.get("startupProbe"):
            command = [sys.executable, *probe["exec"]["command"][1:]]
            self._running[f"{name}-outside"] = subprocess.Popen(
                command, env=env, start_new_session=True
            )

    def _limit(self, uid: str, index: int, mib: int) -> None:
        line = f"gpu {index} memory_limit 0 {mib << 20} /sys/fs/cgroup/kubepods/pod{uid}\n"
        with (self.folder / "state").open("a") as state:
            state.write(line)

    def _bind(self, pod: Object) -> tuple[Any, int | None, int, str]:
        """Choose the GPU as the extender does, and annotate the pod."""
        nodes = decode_nodes(listed(self.lists[NODES]).encode()).items
        pods = decode_pods(listed(self.lists[PODS]).encode()).items
        own = decode_pods(listed([pod]).encode()).items[0]
        terms = pod["spec"]["affinity"]["nodeAffinity"]
        field = terms["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"][0]
        (name,) = field["matchFields"][0]["values"]
        ledger = rebuilt(DEFAULT_NAMES, nodes, pods)
        node_info = ledger.node(name)
        request = pod_request_of(own, DEFAULT_NAMES)
        assert node_info is not None
        assert request is not None
        placed = place(node_info, request)
        assert node_info.inventory is not None
        if isinstance(placed, FitError):
            return node_info.inventory, None, 0, name
        ((index, units),) = placed.mem.items()
        pod["metadata"]["annotations"] |= {
            "ALIYUN_COM_GPU_MEM_IDX": str(index),
            "ALIYUN_COM_GPU_MEM_POD": str(units),
            "ALIYUN_COM_GPU_MEM_ASSIGNED": "true",
        }
        return node_info.inventory, index, units, name

    def answer(self, target: str, *, authorized: bool) -> tuple[int, Object | str]:
        """As the base; pods have their phase, and their log."""
        found = _POD.match(target)
        if found is None:
            return super().answer(target, authorized=authorized)
        name = found[2]
        if target.removesuffix("/log") not in self.objects:
            (item, *_) = [*(p for p in self.lists[PODS] if p.get("selfLink") == target), None]
            return (200, item) if item else (404, {"message": "not found"})
        if found[3]:
            return 200, (self.folder / f"{name}.log").read_text()
        pod = self.objects[target]
        process = self._running.get(name)
        if process is not None and process.poll() is not None:
            pod["status"]["phase"] = "Failed" if process.returncode else "Succeeded"
        return 200, pod

    def ended(self, name: str) -> None:
        """Somebody ended the containers of a pod."""
        _end(self._running[name])

    def deleted(self, path: str) -> tuple[int, Object]:
        """An object and all below it; the pods of a Job with it."""
        if path not in self.objects:
            return 404, {"message": "not found"}
        self.gone.append(path)
        owner = self.objects[path]["metadata"]["uid"]
        for other in list(self.objects):
            owners = self.objects[other].get("metadata", {}).get("ownerReferences", ())
            if (
                other == path
                or other.startswith(f"{path}/")
                or any(one["uid"] == owner for one in owners)
            ):
                self._remove(other)
        inside = path.removeprefix("/api/v1")
        if inside.startswith("/namespaces/") and inside.count("/") == 2:
            for other in [each for each in self.objects if f"{inside}/" in each]:
                self._remove(other)
        return 200, {}

    def _remove(self, path: str) -> None:
        item = self.objects.pop(path, None)
        if item is None or item["kind"] != "Pod":
            return
        self.lists[PODS].remove(item)
        for name in (item["metadata"]["name"], f"{item['metadata']['name']}-outside"):
            if process := self._running.pop(name, None):
                _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait(30)


def _unschedulable() -> Object:
    message = "0/1 nodes are available: not enough GPU memory"
    return {"type": "PodScheduled", "status": "False", "message": message}


def _plugin(node: str) -> Object:
    made = plugin_pod(f"plugin-{node}", node)
    made["selfLink"] = f"/api/v1/namespaces/gpushare/pods/plugin-{node}"
    made["metadata"]["resourceVersion"] = "1"
    made["spec"]["containers"][0]["image"] = "registry.example.com/deviceplugin:1"
    return made


def listed(items: list[Object]) -> str:
    """A list as the API server sends it."""
    return json.dumps({"metadata": {"resourceVersion": "1"}, "items": items})
