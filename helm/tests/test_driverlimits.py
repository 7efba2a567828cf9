"""Isolation by the driver: what the plugin's pod gets for it, and does not get without it."""

from typing import Any

import helm_python as helm
import pytest
from charting import render

pytestmark = pytest.mark.slow

ON = {"driverLimits": {"enabled": True}}


def plugin(values: dict[str, Any]) -> dict[str, Any]:
    """The plugin's pod."""
    return dict(render(values=values).pods())["device-plugin"]


def flags(values: dict[str, Any]) -> list[str]:
    (container,) = plugin(values)["containers"]
    return [flag for flag in container["args"] if "cgroup" in flag or "limits" in flag]


def test_by_default_the_plugin_has_no_part_of_it() -> None:
    """Neither a flag nor the cgroups of its node."""
    pod = plugin({})
    assert flags({}) == []
    assert not [flag for flag in pod["containers"][0]["args"] if "isolation" in flag]
    assert not [volume for volume in pod["volumes"] if volume["name"] == "cgroup"]


def test_the_plugin_sees_the_cgroups_of_its_node_at_their_own_path() -> None:
    """The driver takes the path of a cgroup as the host has it; no capability is added."""
    pod = plugin(ON)
    (container,) = pod["containers"]
    assert flags(ON) == [
        "--driver-limits",
        "--driver-limits-seconds=5",
        "--cgroup-root=/sys/fs/cgroup",
    ]
    (mount,) = (each for each in container["volumeMounts"] if each["name"] == "cgroup")
    (volume,) = (each for each in pod["volumes"] if each["name"] == "cgroup")
    assert mount == {"name": "cgroup", "mountPath": "/sys/fs/cgroup"}
    assert volume["hostPath"] == {"path": "/sys/fs/cgroup", "type": "Directory"}
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    without = plugin({**ON, "devicePlugin": {"hostProcesses": False}})
    assert "hostPID" not in without, "the driver accounts by cgroup"


@pytest.mark.parametrize(
    ("values", "flag"),
    [
        (
            {"driverLimits": {"enabled": True, "cgroupParent": "/kubelet"}},
            "--cgroup-parent=/kubelet",
        ),
        ({"driverLimits": {"enabled": True, "checkSeconds": 30}}, "--driver-limits-seconds=30"),
        ({**ON, "isolation": {"default": "driver"}}, "--isolation=driver"),
        ({"isolation": {"default": "auto"}}, "--isolation=auto"),
        ({"isolation": {"default": "mps"}, "mps": {"enabled": True}}, "--isolation=mps"),
        (
            {**ON, "isolation": {"default": "driver+mps"}, "mps": {"enabled": True}},
            "--isolation=driver+mps",
        ),
    ],
)
def test_values_become_flags(values: dict[str, Any], flag: str) -> None:
    """Each value has its flag."""
    (container,) = plugin(values)["containers"]
    assert flag in container["args"]


@pytest.mark.parametrize("mode", ["driver", "mps", "driver+mps"])
def test_a_default_that_no_gpu_can_have_is_refused(mode: str) -> None:
    """The sentence names the value to set."""
    switch = {"driver": "driverLimits", "mps": "mps"}.get(mode, "driverLimits")
    with pytest.raises(helm.HelmError, match=rf"isolation.default needs .*{switch}.enabled"):
        render(values={"isolation": {"default": mode}})


@pytest.mark.parametrize(
    "values",
    [
        {"isolation": {"default": "strong"}},
        {"driverLimits": {"cgroupRoot": "/etc"}},
        {"driverLimits": {"cgroupRoot": "/sys/fs/cgroup/../../.."}},
        {"driverLimits": {"cgroupParent": "../x"}},
        {"driverLimits": {"checkSeconds": 0}},
    ],
)
def test_values_that_make_no_sense_are_refused(values: dict[str, Any]) -> None:
    """No other directory of the node is mounted under this name."""
    with pytest.raises(helm.HelmError):
        render(values=values)
