"""kind's cluster configuration as text: which nodes, which host folders and labels each one gets.

Written as JSON, which kind reads as the YAML it is. Of the machine only the engine's cgroup version
counts.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import offline
from cluster.nodeimage import NodeImage
from host import docker
from host.featuregates import feature_gates
from host.ipfamily import ip_family

POD_SUBNETS = {"ipv4": "10.244.0.0/16", "ipv6": "fd00:10:244::/56"}
_REFUSES_CGROUP_V1 = (1, 35)


@dataclass(frozen=True)
class NodeMount:
    """A folder or file of the host that a node sees at `container`."""

    host: Path
    container: str
    read_only: bool = True


@dataclass(frozen=True)
class NodeConfig:
    """What one node gets besides its role."""

    mounts: tuple[NodeMount, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)


def render(
    image: NodeImage,
    *,
    workers: Sequence[NodeConfig],
    control_plane: NodeConfig | None = None,
    kubeadm_patches: Sequence[str] = (),
) -> str:
    """The configuration of one control plane and one node per entry of `workers`.

    `kubeadm_patches` are kubeadm documents as kind merges them, applied on every node.
    """
    nodes = [_node("control-plane", control_plane or NodeConfig())]
    nodes += [_node("worker", worker) for worker in workers]
    config = {
        "kind": "Cluster",
        "apiVersion": "kind.x-k8s.io/v1alpha4",
        "networking": {"ipFamily": ip_family(), "podSubnet": POD_SUBNETS[ip_family()]},
        **_gates(image),
        "kubeadmConfigPatches": [*kubeadm_patches, *_cgroup_patches(image)],
        "nodes": nodes,
    }
    return json.dumps(config, indent=2) + "\n"


def _gates(image: NodeImage) -> dict[str, object]:
    """The feature gates of this run on all parts of the cluster, with the API versions of them."""
    newest = offline.minor(image.version) == offline.minor(offline.NEWEST)
    gates = feature_gates() if newest else {}
    return {"featureGates": gates, "runtimeConfig": {"api/all": "true"}} if gates else {}


def part_patches(part: str, flags: Mapping[str, str], **rest: object) -> list[str]:
    """Patches that give a part of the control plane flags, one for each form kubeadm has had.

    Args:
        part: its name in ClusterConfiguration, such as `apiServer`.
        flags: without dashes.
        rest: other fields of the part, the same in every form.
    """
    listed = [{"name": name, "value": value} for name, value in flags.items()]
    forms = {"v1beta2": flags, "v1beta3": flags, "v1beta4": listed}
    return [
        json.dumps(
            {
                "apiVersion": f"kubeadm.k8s.io/{version}",
                "kind": "ClusterConfiguration",
                part: {"extraArgs": form, **rest},
            }
        )
        for version, form in forms.items()
    ]


def _cgroup_patches(image: NodeImage) -> list[str]:
    """Have a kubelet that refuses cgroup v1 run on a host that has nothing else."""
    minor = tuple(map(int, image.version.split(".")[:2]))
    if minor < _REFUSES_CGROUP_V1 or docker.cgroup_version() != "1":
        return []
    patch = {"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration"}
    return [json.dumps({**patch, "failCgroupV1": False})]


def _node(role: str, node: NodeConfig) -> dict[str, object]:
    mounts = [
        {"hostPath": str(m.host), "containerPath": m.container, "readOnly": m.read_only}
        for m in node.mounts
    ]
    return {"role": role, "extraMounts": mounts, "labels": dict(node.labels)}
