"""The original DaemonSet's arguments start this plugin."""

import os
from pathlib import Path

import pytest

from gpudeviceplugin.command_line import read
from gpudeviceplugin.legacy_flags import translated
from gpudeviceplugin.settings import DevicePluginSettings

ORIGINAL = ["-logtostderr", "--v=5", "--memory-unit=GiB"]


def settings(*arguments: str) -> DevicePluginSettings:
    """The settings that these arguments make."""
    given = [*translated(arguments).ours, "--node-name=n1"]
    return read(DevicePluginSettings, given, os.environ, program="plugin")


def test_the_shipped_daemonset_is_taken() -> None:
    """Its logger's flags are left out, its unit is set."""
    assert settings(*ORIGINAL).memory_unit == "GiB"
    assert translated(ORIGINAL).ignored == ["logtostderr", "v"]


def test_every_flag_of_the_original_is_taken() -> None:
    """With one dash or two, with the value after an equals sign or in an argument of its own."""
    arguments = ["-health-check", "--query-kubelet", "-kubelet-address", "10.0.0.1"]
    arguments += ["--kubelet-port=10250", "-client-cert=/a", "-client-key", "/b", "--token", "t"]
    arguments += ["--timeout", "10", "-v", "5", "-memory-unit", "MiB", "-stderrthreshold=INFO"]
    made = settings(*arguments, "--log-level=debug")
    assert (made.memory_unit, made.log_level) == ("MiB", "debug")


@pytest.mark.parametrize(
    ("argument", "on"),
    [("--mps", True), ("-mps", True), ("--mps=true", True), ("-mps=false", False)],
)
def test_mps_is_a_switch_with_or_without_a_value(argument: str, on: bool) -> None:
    """Go takes ``=true`` and ``=false``; the pipe directory keeps its meaning."""
    made = settings(argument, "--mps-pipe", "/root/nvidia-mps")
    assert (made.mps, made.mps_pipe) == (on, "/root/nvidia-mps")


def test_other_flags_are_passed_on_as_they_are() -> None:
    """A misspelt flag is still refused, with its own name."""
    assert translated(["--reserve-mib", "100", "--no-such-flag"]).ours == [
        "--reserve-mib",
        "100",
        "--no-such-flag",
    ]


def test_values_of_ignored_flags_are_not_kept() -> None:
    """A token must not get into a log."""
    assert "secret" not in str(translated(["--token", "secret", "--token=secret"]))


def test_a_kubeconfig_of_the_environment_that_is_not_there_is_passed_over(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The original's DaemonSet sets KUBECONFIG on clusters that have no such file."""
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "kubelet.conf"))
    assert settings().usable_kubeconfig == tmp_path / "kubelet.conf"  # the error names it
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    assert settings().usable_kubeconfig is None
    (tmp_path / "kubelet.conf").write_text("")
    assert settings().usable_kubeconfig == tmp_path / "kubelet.conf"
