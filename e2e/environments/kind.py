"""The stack on a kind cluster whose workers carry mock machines.

Everything is made or found again: engine, tools, node image, service images, cluster, release. The
cluster itself is created through pytest-kind's class, with kind and kubectl from this machine.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from pytest_kind.cluster import KindCluster

from cluster import engine, kindconfig, lifecycle, nodeimage, tools
from environments import (
    audit,
    clusterscheduler,
    helm,
    imageloading,
    machines,
    nodereadiness,
    rollouts,
)
from environments.environment import MachineGpu, UnavailableError
from environments.kubectl import Kubectl
from environments.objects import Objects
from environments.waiting import until
from host import cachedir, docker
from host.addresses import holding_address
from host.commands import run_command
from host.errors import SetupError
from host.progress import step
from images import build as images
from mocknvml import build as mocknvml

MACHINES = ("t4-2x16", "dgx1-volta")
NAMESPACE = "gpushare"
RELEASE = "gpushare"
GPU_MEM = "aliyun.com/gpu-mem"
LABELS = ("gpushare=true", "gputopology=true")
CHART = Path(__file__).parents[2] / "helm" / "gpushare"
COMMANDS = Path(__file__).parents[2] / ".venv" / "bin"
PLUGINS = ("gpushare", "kubectl-inspect-gpushare", "kubectl-inspect-gpu")

# kubelet looks for changed static pods and mounted configuration this often, and reports changed
# resources of its node so soon. What has not changed it reports once a minute. One of 1.20 reports
# a pod with a startup probe as ready only when it syncs the whole pod again.
_KUBELET = json.dumps(
    {
        "kind": "KubeletConfiguration",
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "fileCheckFrequency": "1s",
        "syncFrequency": "3s",
        "nodeStatusUpdateFrequency": "1s",
        "nodeStatusReportFrequency": "1m",
    }
)

# Intervals of the plugin's own checks, in seconds.
_LOOKS = {"probe": 1, "mps-check": 1, "reconcile": 5}


class KindEnvironment:
    """One named cluster; see :class:`environments.environment.Environment`.

    Args:
        name: of the kind cluster.
        workers: the mock machine of each worker.
        reuse: take a running cluster of the name; else one left by a run cut off is removed first.
    """

    def __init__(self, name: str, workers: Sequence[str] = MACHINES, *, reuse: bool = True) -> None:
        self.name = name
        self.reuse = reuse
        self.namespace = NAMESPACE
        self.workers = tuple(workers)
        self.folder = cachedir.root() / "clusters" / name
        self.node_image: nodeimage.NodeImage | None = None
        self._fed = False
        names = [f"{name}-worker{number or ''}" for number in (0, *range(2, len(workers) + 1))]
        self.machines = dict(zip(names, self.workers, strict=True))
        self.nodes: Mapping[str, tuple[MachineGpu, ...]] = {
            node: machines.gpus(machine) for node, machine in self.machines.items()
        }

    def prepare(self) -> nodeimage.NodeImage:
        """Engine and node image, which tell the version of a cluster before there is one.

        Raises:
            SetupError: this machine lacks something; the sentence states what.
        """
        engine.ensure()
        self.node_image = nodeimage.ensure()
        return self.node_image

    def start(self) -> None:
        """Bring all of it up, or find it up already.

        Raises:
            UnavailableError: this machine lacks something; the sentence states what.
        """
        try:
            node_image = self.prepare()
            self._programs = tools.ensure(node_image)
            # Neither needs the other, and both mostly wait.
            with ThreadPoolExecutor(max_workers=1) as beside:
                building = beside.submit(images.ensure)
                self._cluster(node_image, building)
                built = building.result()
        except SetupError as reason:
            where = f" ({self.node_image.described()})" if self.node_image else ""
            raise UnavailableError(f"{reason}{where}") from reason
        self.tools = self._tool_folder()
        self.kubectl = Kubectl(self._programs.kubectl, self.kubeconfig, path=(self.tools,))
        self.objects = Objects(self.kubeconfig)
        self.image = built.sample
        self.modelserver = built.modelserver
        if not self._fed:
            self.load(built)
            self._fed = True
        with step("install the chart"):
            self.kubectl("label", "node", *self.nodes, *LABELS, "--overwrite")
            self.values = self.values_of(built)
            self.install()
        with step("wait for the stack"):
            self.wait_ready()

    @contextmanager
    def node_image_named(self, name: str) -> Iterator[str]:
        """The node image under another name beside its own, for as long as the context lasts."""
        assert self.node_image is not None
        docker.tag(self.node_image.name, name)
        try:
            yield name
        finally:
            docker.remove([name])

    def stop(self) -> None:
        """Remove the cluster and what was laid out for it."""
        lifecycle.down(self.name)

    def install(self, values: dict[str, Any] | None = None) -> None:
        """Install or upgrade the stack, to other values than it has if given; they then stay."""
        self.values = values or self.values
        helm.install(RELEASE, CHART, NAMESPACE, self.values, self.kubeconfig)

    def uninstall(self) -> None:
        """Remove the stack, and nothing else."""
        helm.uninstall(RELEASE, NAMESPACE, self.kubeconfig)

    def forget(self) -> None:
        """Take off the nodes what an uninstall leaves, as the page about it describes."""
        left = ("gpushare/inventory-", "GPU_TOPOLOGY-", "NODE_TYPE-")
        self.kubectl("annotate", "node", *self.nodes, *left)
        self.kubectl("label", "node", *self.nodes, "gpushare/inventory-hash-")

    @property
    def version(self) -> tuple[int, int]:
        """Major and minor version of Kubernetes, of an environment that was prepared or started."""
        assert self.node_image is not None
        major, minor, *_ = map(int, self.node_image.version.split("."))
        return major, minor

    def described(self) -> str:
        """Kubernetes version and node image, of an environment that was started."""
        assert self.node_image is not None
        return self.node_image.described()

    @property
    def kubeconfig(self) -> Path:
        """Of the cluster; its folder outlives this process."""
        return self.folder / "kubeconfig"

    @property
    def control_plane(self) -> str:
        """Name of the node that kubeadm's static pods run on."""
        return f"{self.name}-control-plane"

    def break_gpus(self, node: str, *lines: str) -> None:
        """Say how the mock GPUs of a worker are now, in the lines of its state file."""
        (self.folder / node / "state").write_text(machines.state(*lines))

    def on_node(self, node: str, script: str) -> str:
        """What a shell script on a worker reports, as its administrator would run it."""
        return run_command(["docker", "exec", node, "sh", "-c", script], timeout_s=300)

    def restart_kubelet(self, node: str) -> None:
        """Restart the real kubelet of a worker, and wait until it has the pods of its node."""
        run_command(["docker", "exec", node, "systemctl", "restart", "kubelet"], timeout_s=300)
        until(
            f"the kubelet of {node} has the pods of its node",
            lambda: self._assigned(node) <= self._known_to_kubelet(node),
        )

    def _assigned(self, node: str) -> set[str]:
        """UIDs of the pods that the API server has on a node."""
        pods = [pod["metadata"] for pod in self.objects.pods_of_node(node)]
        return {each["uid"] for each in pods if "deletionTimestamp" not in each}

    def _known_to_kubelet(self, node: str) -> set[str]:
        """UIDs of the pods that kubelet itself lists; none as long as it does not answer."""
        answer = self.kubectl.attempt("get", "--raw", f"/api/v1/nodes/{node}/proxy/pods")
        if answer.returncode:
            return set()
        return {pod["metadata"]["uid"] for pod in json.loads(answer.stdout)["items"] or []}

    def read_stopped(self, node: str, path: str) -> str:
        """The text of a file on the disk of a worker, which may be stopped."""
        folder = self.folder / "read"
        run_command(["docker", "cp", f"{node}:{path}", folder], timeout_s=60)
        text = folder.read_text()
        folder.unlink()
        return text

    def stop_node(self, node: str) -> None:
        """Stop a worker as a machine is shut down; what lies on its disk stays."""
        run_command(["docker", "stop", "--time=20", node], timeout_s=300)

    @contextmanager
    def address_taken(self, address: str) -> Iterator[None]:
        """Have another container take an address, as a cluster made meanwhile would.

        A worker that had it and is started again gets another one.
        """
        with holding_address(address, network="kind", image=self.image):
            yield

    def start_node(self, node: str) -> None:
        """Start a stopped worker again; it may get another address."""
        run_command(["docker", "start", node], timeout_s=300)

    def wait_node_ready(self, node: str) -> None:
        """Wait until a worker is Ready.

        Raises:
            NodeFaultError: its log shows why it never will be.
            DeadlineError: it is not in time; names what its log shows.
        """
        nodereadiness.wait(node, self.objects)

    def wait_ready(self) -> None:
        """Wait until scheduler, extender and plugins run and the nodes offer their units."""
        rollouts.wait(self.kubectl, NAMESPACE)
        until("every node offers its units", self._offered)

    def _offered(self) -> bool:
        for node, gpus in self.nodes.items():
            status = self.objects.node(node)["status"]
            wanted = str(sum(gpu.units for gpu in gpus))
            if status["allocatable"].get(GPU_MEM) != wanted:
                return False
        return True

    def _cluster(self, image: nodeimage.NodeImage, building: Future[images.Built]) -> None:
        """Create the cluster with images in its workers, or take the running one of the name."""
        workers = []
        for node, machine in self.machines.items():
            machines.write_files(self.folder / node, machine)
            # The library writes limits into the state, as a driver keeps them.
            mount = kindconfig.NodeMount(self.folder / node, machines.IN_NODE, read_only=False)
            workers.append(kindconfig.NodeConfig(mounts=(mount,)))
        config = self.folder / "kind.json"
        control_plane = kindconfig.NodeConfig(
            mounts=(audit.write_policy(self.folder / "audit", NAMESPACE),)
        )
        patches = (*audit.kubeadm_patches(), *clusterscheduler.kubeadm_patches(), _KUBELET)
        config.write_text(
            kindconfig.render(
                image, workers=workers, control_plane=control_plane, kubeadm_patches=patches
            )
        )
        lifecycle.up(
            self.name,
            config=config,
            kubeconfig=self.kubeconfig,
            create=partial(self._create, building),
            reuse=self.reuse,
        )

    def _create(
        self,
        building: Future[images.Built],
        programs: tools.Tools,
        name: str,
        image: nodeimage.NodeImage,
        *,
        config: Path,
        kubeconfig: Path,
    ) -> None:
        """Make the cluster through pytest-kind's class."""
        kind = KindCluster(
            name,
            kubeconfig,
            image=image.name,
            kind_path=self._retaining(programs.kind),
            kubectl_path=programs.kubectl,
        )

        def meanwhile() -> None:
            self.load(building.result())
            self._fed = True
            clusterscheduler.probe_early(self.control_plane)

        create = partial(kind.create, config_file=config)
        imageloading.while_created(create, meanwhile, workers=tuple(self.nodes))

    def _retaining(self, kind: Path) -> Path:
        """A kind that keeps the nodes of a failed creation, which pytest-kind has no word for."""
        program = self.folder / "kind-retain"
        retain = '[ "$1 $2" != "create cluster" ] || set -- "$@" --retain'
        program.write_text(f'#!/bin/sh\n{retain}\nexec "{kind}" "$@"\n')
        program.chmod(0o755)
        return program

    def load(self, built: images.Built) -> None:
        """Put the images into the workers."""
        workers, kind = tuple(self.nodes), self._programs.kind
        imageloading.load(kind, self.name, workers=workers, images=built.names())

    def _tool_folder(self) -> Path:
        """A folder for PATH: the kubectl that fits the cluster, and our plugins of it."""
        folder = self.folder / "bin"
        folder.mkdir(exist_ok=True)
        for program in (self._programs.kubectl, *(COMMANDS / name for name in PLUGINS)):
            link = folder / program.name
            link.unlink(missing_ok=True)
            link.symlink_to(program)
        return folder

    def values_of(self, built: images.Built) -> dict[str, Any]:
        """Values of the chart for this cluster: images built here, the mock machine mounted."""
        return {
            "image": {"registry": "local"},
            "scheduler": {"tolerations": [], "leaderElection": clusterscheduler.ELECTION},
            "mps": {"enabled": True, "control": f"/machine/{machines.MPS_CONTROL}"},
            "extender": {"image": _image(built.extender)},
            "dashboard": {
                "enabled": True,
                "image": _image(built.inspect),
                "intervalSeconds": 2,
            },
            "devicePlugin": {
                "image": _image(built.deviceplugin),
                "unhealthyConfigMap": True,
                "extraArgs": [f"--{each}-seconds={n}" for each, n in _LOOKS.items()],
                "nvml": {"hostPath": machines.LIBRARY_IN_NODE},
                # A kept cluster's plugins start anew with a library that was edited.
                "podAnnotations": {"mocknvml": mocknvml.ensure().name},
                "extraEnv": [
                    {"name": "GPUSHARE_MOCK_NVML_MACHINE", "value": "/machine/machine"},
                    {"name": "GPUSHARE_MOCK_NVML_STATE", "value": "/machine/state"},
                ],
                "extraVolumes": [{"name": "machine", "hostPath": {"path": machines.IN_NODE}}],
                "extraVolumeMounts": [{"name": "machine", "mountPath": "/machine"}],
            },
        }


def _image(name: str) -> dict[str, str]:
    repository, _, tag = name.rpartition(":")
    return {"repository": repository, "tag": tag}
