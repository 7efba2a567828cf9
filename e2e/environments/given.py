"""A cluster that somebody gives by its kubeconfig, such as one whose nodes have real GPUs.

The stack must be installed there. Nothing of the cluster itself is changed: cases make namespaces
and pods. GPUs are taken from the inventories that the nodes publish.
"""

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from environments import rollouts
from environments.environment import MachineGpu, UnavailableError
from environments.kubectl import Kubectl
from environments.objects import Objects

KUBECONFIG: Final = "GPU_KUBECONFIG"
IMAGE: Final = "GPU_IMAGE"
NAMESPACE: Final = "GPU_NAMESPACE"
DEFAULT_IMAGE: Final = "python:3.11-slim"
INVENTORY: Final = "gpushare/inventory"
COMMANDS: Final = Path(__file__).parents[2] / ".venv" / "bin"


class GivenEnvironment:
    """See :class:`environments.environment.Environment`.

    Args:
        settings: environment variables; ``GPU_KUBECONFIG`` is the path of the kubeconfig,
            ``GPU_IMAGE`` an image with Python and a shell, ``GPU_NAMESPACE`` that of the stack.

    Raises:
        UnavailableError: no cluster is given, or it has no node with GPUs.
    """

    def __init__(self, settings: Mapping[str, str]) -> None:
        kubeconfig, program = settings.get(KUBECONFIG, ""), shutil.which("kubectl")
        if not kubeconfig:
            raise UnavailableError(f"{KUBECONFIG} names no cluster with GPU nodes")
        if program is None:
            raise UnavailableError("kubectl is not on PATH")
        self.kubectl = Kubectl(Path(program), Path(kubeconfig), path=(COMMANDS,))
        self.objects = Objects(Path(kubeconfig))
        self.namespace = settings.get(NAMESPACE, "gpushare")
        self.image = self.modelserver = settings.get(IMAGE, DEFAULT_IMAGE)
        self.nodes: Mapping[str, tuple[MachineGpu, ...]] = gpu_nodes(self.objects.nodes())
        if not self.nodes:
            raise UnavailableError(f"no node of the cluster in {kubeconfig} publishes GPUs")

    def wait_ready(self) -> None:
        """Wait until every part of the stack runs."""
        rollouts.wait(self.kubectl, self.namespace)

    @property
    def version(self) -> tuple[int, int]:
        """Major and minor version of Kubernetes."""
        server = self.kubectl.json("version", "-o", "json")["serverVersion"]
        return int(server["major"]), int(server["minor"].rstrip("+"))

    def described(self) -> str:
        """The Kubernetes version, and how many GPUs there are."""
        major, minor = self.version
        count = sum(len(gpus) for gpus in self.nodes.values())
        return f"Kubernetes {major}.{minor}, given, {count} GPUs on {len(self.nodes)} nodes"


def gpu_nodes(nodes: list[dict[str, object]]) -> dict[str, tuple[MachineGpu, ...]]:
    """The GPUs of each node that publishes an inventory, by the node's name."""
    found = {}
    for node in nodes:
        metadata = json.loads(json.dumps(node["metadata"]))
        inventory = json.loads((metadata.get("annotations") or {}).get(INVENTORY, '{"gpus": []}'))
        gpus = [MachineGpu(gpu["index"], gpu["uuid"], gpu["units"]) for gpu in inventory["gpus"]]
        if gpus:
            found[metadata["name"]] = tuple(gpus)
    return found


def is_given(selection: str, settings: Mapping[str, str]) -> bool:
    """Whether the cases run on a given cluster and not on one of kind.

    Args:
        selection: the expression of ``pytest -m``.
        settings: environment variables.
    """
    return bool(settings.get(KUBECONFIG)) or selection.strip() == "gpu"
