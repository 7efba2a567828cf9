"""The kind configuration gives each node its mounts and labels, and every kubeadm its flags."""

import json
from pathlib import Path

import pytest

from cluster import kindconfig
from cluster.kindconfig import NodeConfig, NodeMount, part_patches, render
from cluster.nodeimage import NodeImage
from host.testing.fakeprograms import FakePrograms

BUILT = NodeImage("gpushare/kind-node:v1", "1.20.2", built_here=True)
NEW = NodeImage("kindest/node:v1", "1.37.0", built_here=False)


def test_each_worker_gets_its_own_mounts_and_labels() -> None:
    """Workers keep their order, and the control plane stands first with nothing of theirs."""
    mount = NodeMount(Path("/host/nvml"), "/opt/nvml")
    writable = NodeMount(Path("/host/state"), "/var/state", read_only=False)
    workers = [NodeConfig(mounts=(mount, writable), labels={"gpushare": "true"}), NodeConfig()]
    nodes = json.loads(render(BUILT, workers=workers))["nodes"]
    assert [node["role"] for node in nodes] == ["control-plane", "worker", "worker"]
    assert [len(node["extraMounts"]) for node in nodes] == [0, 2, 0]
    assert nodes[1]["labels"] == {"gpushare": "true"}
    assert nodes[1]["extraMounts"] == [
        {"hostPath": "/host/nvml", "containerPath": "/opt/nvml", "readOnly": True},
        {"hostPath": "/host/state", "containerPath": "/var/state", "readOnly": False},
    ]


@pytest.mark.parametrize(
    ("image", "cgroup", "patched"),
    [(NEW, "1", True), (NEW, "2", False), (BUILT, "1", False)],
    ids=["new on v1", "new on v2", "old on v1"],
)
def test_a_kubelet_that_refuses_cgroup_v1_is_configured_to_run_on_it(
    programs: FakePrograms, image: NodeImage, cgroup: str, *, patched: bool
) -> None:
    """Only where the host has nothing else: an old kubelet does not know the setting."""
    programs.add("docker", f"echo {cgroup}")
    patches = map(json.loads, json.loads(render(image, workers=[]))["kubeadmConfigPatches"])
    expected = [{"failCgroupV1": False}] if patched else []
    assert [{"failCgroupV1": each["failCgroupV1"]} for each in patches] == expected


def test_flags_of_a_part_are_given_in_every_form_of_kubeadms_documents() -> None:
    """A mapping up to v1beta3, a list of names and values from v1beta4 on."""
    patches = map(json.loads, part_patches("scheduler", {"v": "4"}, extraVolumes=[]))
    forms = {each["apiVersion"].rpartition("/")[2]: each["scheduler"] for each in patches}
    mapped = {"extraArgs": {"v": "4"}, "extraVolumes": []}
    listed = {"extraArgs": [{"name": "v", "value": "4"}], "extraVolumes": []}
    assert forms == {"v1beta2": mapped, "v1beta3": mapped, "v1beta4": listed}


def test_kubeadm_patches_and_the_control_plane_are_passed_on() -> None:
    """What the caller wants of kubeadm and of the control plane's node reaches kind unchanged."""
    patch = "kind: ClusterConfiguration\n"
    control_plane = NodeConfig(labels={"role": "first"})
    config = json.loads(
        render(BUILT, workers=[], control_plane=control_plane, kubeadm_patches=[patch])
    )
    assert config["kubeadmConfigPatches"] == [patch]
    assert config["nodes"][0]["labels"] == {"role": "first"}


@pytest.mark.parametrize(("family", "mark"), [("ipv4", "."), ("ipv6", ":")])
def test_pods_have_addresses_of_the_family_of_the_run(
    monkeypatch: pytest.MonkeyPatch, family: str, mark: str
) -> None:
    """Services get theirs by kind's default for the family."""
    monkeypatch.setattr(kindconfig, "ip_family", lambda: family)
    networking = json.loads(render(BUILT, workers=[]))["networking"]
    assert networking["ipFamily"] == family
    assert mark in networking["podSubnet"]


def test_feature_gates_of_a_run_are_for_the_newest_version(
    programs: FakePrograms, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every part gets them, and the API versions that they need are served."""
    programs.add("docker", "echo 2")
    monkeypatch.setattr("cluster.kindconfig.feature_gates", lambda: {"AllBeta": True})
    config = json.loads(render(NEW, workers=[]))
    assert config["featureGates"] == {"AllBeta": True}
    assert config["runtimeConfig"] == {"api/all": "true"}
    assert "featureGates" not in json.loads(render(BUILT, workers=[]))
