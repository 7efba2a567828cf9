"""The kind configuration gives each node its mounts and labels, and a pod network where needed."""

import json
from pathlib import Path

import pytest

from cluster.kindconfig import Mount, Node, render
from cluster.nodeimage import NodeImage

BUILT = NodeImage("gpushare/kind-node:v1", built_here=True)
OFFICIAL = NodeImage("kindest/node:v1", built_here=False)


def test_each_worker_gets_its_own_mounts_and_labels() -> None:
    """Workers keep their order, and the control plane stands first with nothing of theirs."""
    mount = Mount(Path("/host/nvml"), "/opt/nvml")
    writable = Mount(Path("/host/state"), "/var/state", read_only=False)
    workers = [Node(mounts=(mount, writable), labels={"gpushare": "true"}), Node()]
    nodes = json.loads(render(BUILT, workers=workers))["nodes"]
    assert [node["role"] for node in nodes] == ["control-plane", "worker", "worker"]
    assert [len(node["extraMounts"]) for node in nodes] == [0, 2, 0]
    assert nodes[1]["labels"] == {"gpushare": "true"}
    assert nodes[1]["extraMounts"] == [
        {"hostPath": "/host/nvml", "containerPath": "/opt/nvml", "readOnly": True},
        {"hostPath": "/host/state", "containerPath": "/var/state", "readOnly": False},
    ]


@pytest.mark.parametrize(("image", "disabled"), [(BUILT, True), (OFFICIAL, False)])
def test_only_nodes_from_packages_bring_their_own_network(
    image: NodeImage, *, disabled: bool
) -> None:
    """Kind's own CNI stays in place for an official node image, which has it."""
    assert json.loads(render(image, workers=[]))["networking"]["disableDefaultCNI"] is disabled


def test_kubeadm_patches_and_the_control_plane_are_passed_on() -> None:
    """What the caller wants of kubeadm and of the control plane's node reaches kind unchanged."""
    patch = "kind: ClusterConfiguration\n"
    control_plane = Node(labels={"role": "first"})
    config = json.loads(
        render(BUILT, workers=[], control_plane=control_plane, kubeadm_patches=[patch])
    )
    assert config["kubeadmConfigPatches"] == [patch]
    assert config["nodes"][0]["labels"] == {"role": "first"}
