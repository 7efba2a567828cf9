"""Isolation by MPS: what the plugin's pod gets for it, and does not get without it."""

from typing import Any

import helm_python as helm
import pytest
from charting import render

pytestmark = pytest.mark.slow


def plugin(**mps: Any) -> dict[str, Any]:
    """The plugin's pod."""
    return dict(render(values={"mps": mps}).pods())["device-plugin"]


def test_mps_needs_the_processes_of_the_node_whatever_else_does() -> None:
    """A server looks its clients up by process ID."""
    values = {"mps": {"enabled": True}, "devicePlugin": {"hostProcesses": False}}
    assert dict(render(values=values).pods())["device-plugin"]["hostPID"] is True


def test_without_mps_the_plugin_has_no_part_of_it() -> None:
    """Neither a capability nor shared memory of its node, nor a flag of it."""
    pod = plugin()
    (container,) = pod["containers"]
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert "hostIPC" not in pod
    assert not [flag for flag in container["args"] if "mps" in flag]
    assert not [volume for volume in pod["volumes"] if "mps" in volume["name"]]


def test_a_default_of_mps_without_mps_is_refused() -> None:
    """No GPU would have a limit, although the values request one for all."""
    with pytest.raises(helm.HelmError, match=r"mps\.default is mps.*set mps\.enabled=true"):
        plugin(default="mps")
    found = render(values={"mps": {"default": "mps"}, "isolation": {"default": "none"}})
    (container,) = dict(found.pods())["device-plugin"]["containers"]
    assert "--isolation=none" in container["args"]


def test_with_mps_the_plugin_can_run_daemons_for_containers_of_others() -> None:
    """Pipes at the path that clients get, one /dev/shm for all, servers of any user."""
    pod = plugin(enabled=True, root="/run/somewhere")
    (container,) = pod["containers"]
    assert pod["hostPID"] is True
    assert "hostIPC" not in pod
    mounts = {mount["mountPath"]: mount["name"] for mount in container["volumeMounts"]}
    paths = {volume["name"]: volume.get("hostPath", {}).get("path") for volume in pod["volumes"]}
    assert paths[mounts["/run/somewhere"]] == "/run/somewhere"
    (shm,) = (each for each in pod["volumes"] if each["name"] == mounts["/dev/shm"])
    assert shm["emptyDir"] == {"medium": "Memory", "sizeLimit": "1Gi"}
    path = "pods/$(POD_UID)/volumes/kubernetes.io~empty-dir"
    assert f"--mps-shm=/var/lib/kubelet/{path}/{shm['name']}" in container["args"]
    assert {"name": "POD_UID", "valueFrom": {"fieldRef": {"fieldPath": "metadata.uid"}}} in (
        container["env"]
    )
    context = container["securityContext"]
    assert context["capabilities"] == {"drop": ["ALL"], "add": ["SETUID", "SETGID", "KILL"]}
    assert context["readOnlyRootFilesystem"] is True
    assert "privileged" not in context
    env = {each["name"]: each.get("value") for each in container["env"]}
    assert env["NVIDIA_DRIVER_CAPABILITIES"] == "compute,utility"
    assert container["resources"]["limits"]["memory"] == "4Gi"


@pytest.mark.parametrize(
    ("value", "flags"),
    [
        ({}, {"--mps-root=/run/gpushare/mps", "--mps-control=nvidia-cuda-mps-control"}),
        ({"default": "mps"}, {"--mps"}),
        ({"multiUser": True}, {"--mps-multi-user"}),
        ({"control": "/opt/mps"}, {"--mps-control=/opt/mps"}),
        ({}, {"--mps-read-only-pipes"}),
    ],
)
def test_values_become_flags(value: dict[str, Any], flags: set[str]) -> None:
    """Each value has its flag, and none is there by default."""
    (container,) = plugin(enabled=True, **value)["containers"]
    found = {flag for flag in container["args"] if "mps" in flag}
    assert flags <= found
    assert ("--mps" in found) is (value.get("default") == "mps")


def test_pipes_may_be_writable() -> None:
    """For a CUDA release whose clients write to them."""
    (container,) = plugin(enabled=True, readOnlyPipes=False)["containers"]
    assert "--mps-read-only-pipes" not in container["args"]


def test_an_upgrade_may_wait_for_the_operator() -> None:
    """OnDelete has no number of nodes at once."""
    rendered = render(values={"devicePlugin": {"updateStrategy": "OnDelete"}})
    assert rendered.one("DaemonSet", "-device-plugin")["spec"]["updateStrategy"] == {
        "type": "OnDelete"
    }


@pytest.mark.parametrize("root", ["run/mps", "/run/mps/", "/" + "x" * 40, "/run/my mps"])
def test_a_folder_that_sockets_cannot_be_in_is_refused(root: str) -> None:
    """A socket's path has 107 bytes, and the GPU's uuid takes its part of them."""
    with pytest.raises(helm.HelmValuesError, match="root"):
        plugin(enabled=True, root=root)
