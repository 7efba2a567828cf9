"""The stack on a kind cluster whose workers carry mock machines.

Everything is made or found again: engine, tools, node image, service images, cluster, release. The
cluster itself is created through pytest-kind's class, with kind and kubectl from this machine.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

from pytest_kind.cluster import KindCluster

from cluster import cachedir, engine, kindconfig, lifecycle, nodeimage, tools
from cluster.errors import ClusterError
from cluster.progress import step
from environments import helm, machines
from environments.environment import Card, UnavailableError
from environments.kubectl import Kubectl
from environments.waiting import until
from images import build as images
from mocknvml import build as mocknvml

MACHINES = ("t4-2x16", "a100-pcie-4x40")
NAMESPACE = "gpushare"
RELEASE = "gpushare"
GPU_MEM = "aliyun.com/gpu-mem"
CHART = Path(__file__).parents[2] / "helm" / "gpushare"
COMMANDS = Path(__file__).parents[2] / ".venv" / "bin"
READY_SECONDS = 180
NODES_SECONDS = 180.0


class KindEnvironment:
    """One named cluster; see :class:`environments.environment.Environment`.

    Args:
        name: of the kind cluster.
        workers: the mock machine of each worker.
    """

    def __init__(self, name: str, workers: Sequence[str] = MACHINES) -> None:
        self.name = name
        self.namespace = NAMESPACE
        self.workers = tuple(workers)
        self.folder = cachedir.root() / "clusters" / name
        names = [f"{name}-worker{number or ''}" for number in (0, *range(2, len(workers) + 1))]
        self.machines = dict(zip(names, self.workers, strict=True))
        self.nodes: Mapping[str, tuple[Card, ...]] = {
            node: machines.cards(machine) for node, machine in self.machines.items()
        }

    def start(self) -> None:
        """Bring all of it up, or find it up already.

        Raises:
            UnavailableError: this machine lacks something; the sentence says what.
        """
        try:
            engine.ensure()
            node_image = nodeimage.ensure()
            self._programs = tools.ensure(node_image)
            built = images.ensure()
            self._cluster(node_image)
        except ClusterError as reason:
            raise UnavailableError(str(reason)) from reason
        self.tools = self._tool_folder()
        self.kubectl = Kubectl(self._programs.kubectl, self.kubeconfig, path=(self.tools,))
        self.image = built.sample
        with step("load the images into the nodes"):
            self._load(built.names())
        with step("install the chart"):
            self.kubectl("label", "node", *self.nodes, "gpushare=true", "--overwrite")
            helm.install(RELEASE, CHART, NAMESPACE, self._values(built), self.kubeconfig)
        with step("wait for the stack"):
            self.wait_ready()

    def stop(self) -> None:
        """Remove the cluster and what was laid out for it."""
        lifecycle.down(self.name)

    @property
    def kubeconfig(self) -> Path:
        """Of the cluster; its folder outlives this process."""
        return self.folder / "kubeconfig"

    def state_file(self, node: str) -> Path:
        """The file that says how the cards of a worker are; edit it to break and mend them."""
        return self.folder / node / "state"

    def wait_ready(self) -> None:
        """Wait until scheduler, extender and plugins run and the nodes offer their units."""
        limit = f"--timeout={READY_SECONDS}s"
        for kind in ("deployment", "daemonset"):
            names = self.kubectl("get", kind, "-n", NAMESPACE, "-o", "name").split()
            for name in names:
                self.kubectl("rollout", "status", name, "-n", NAMESPACE, limit)
        until("every node offers its units", self._offered, seconds=READY_SECONDS)

    def _offered(self) -> bool:
        for node, cards in self.nodes.items():
            status = self.kubectl.json("get", "node", node)["status"]
            wanted = str(sum(card.units for card in cards))
            if status["allocatable"].get(GPU_MEM) != wanted:
                return False
        return True

    def _cluster(self, image: nodeimage.NodeImage) -> None:
        """Create the cluster through pytest-kind's class, or take the running one of the name."""
        library = mocknvml.ensure()
        workers = []
        for node, machine in self.machines.items():
            machines.lay_out(self.folder / node, machine)
            folders = {library: machines.LIBRARY_IN_NODE, self.folder / node: machines.IN_NODE}
            mounts = tuple(kindconfig.Mount(host, inside) for host, inside in folders.items())
            workers.append(kindconfig.Node(mounts=mounts))
        config = self.folder / "kind.json"
        config.write_text(kindconfig.render(image, workers=workers))
        lifecycle.discard_stopped(self.name)
        if self.name in lifecycle.clusters():
            lifecycle.export_kubeconfig(self.name, self.kubeconfig)
        with step(f"create cluster {self.name}"):
            kind = KindCluster(
                self.name,
                self.kubeconfig,
                image=image.name,
                kind_path=self._programs.kind,
                kubectl_path=self._programs.kubectl,
            )
            kind.create(config_file=config)
        if image.built_here:
            lifecycle.silence_coredns(self.kubeconfig, kubectl=self._programs.kubectl)
        lifecycle.wait_ready(
            self.kubeconfig, kubectl=self._programs.kubectl, timeout_s=NODES_SECONDS
        )
