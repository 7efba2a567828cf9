"""kind's cluster configuration as text: which nodes, which host folders and labels each one gets.

Written as JSON, which kind reads as the YAML it is. Pure: nothing is checked against the machine.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from cluster.nodeimage import NodeImage

POD_SUBNET = "10.244.0.0/16"


@dataclass(frozen=True)
class Mount:
    """A folder or file of the host that a node sees at `container`."""

    host: Path
    container: str
    read_only: bool = True


@dataclass(frozen=True)
class Node:
    """What one node gets besides its role."""

    mounts: tuple[Mount, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)


def render(
    image: NodeImage,
    *,
    workers: Sequence[Node],
    control_plane: Node | None = None,
    kubeadm_patches: Sequence[str] = (),
) -> str:
    """The configuration of one control plane and one node per entry of `workers`.

    Nodes built from packages bring their own pod network, so kind's is left out for them.
    `kubeadm_patches` are kubeadm documents as kind merges them, applied on every node.
    """
    nodes = [_node("control-plane", control_plane or Node())]
    nodes += [_node("worker", worker) for worker in workers]
    config = {
        "kind": "Cluster",
        "apiVersion": "kind.x-k8s.io/v1alpha4",
        "networking": {"podSubnet": POD_SUBNET, "disableDefaultCNI": image.built_here},
        "kubeadmConfigPatches": list(kubeadm_patches),
        "nodes": nodes,
    }
    return json.dumps(config, indent=2) + "\n"


def _node(role: str, node: Node) -> dict[str, object]:
    mounts = [
        {"hostPath": str(m.host), "containerPath": m.container, "readOnly": m.read_only}
        for m in node.mounts
    ]
    return {"role": role, "extraMounts": mounts, "labels": dict(node.labels)}
