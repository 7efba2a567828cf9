"""Flags, environment and defaults."""

import pytest
from pydantic import ValidationError
from pydantic_settings import CliApp

from gpucore.model import IsolationMode
from gpucore.node.isolation.mps_grant import MpsPlace
from gpucore.units import MemoryUnit
from gpudeviceplugin.__main__ import main
from gpudeviceplugin.settings import DevicePluginSettings


def test_a_flag_wins_over_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Flag, then variable, then default."""
    monkeypatch.setenv("NODE_NAME", "from-env")
    monkeypatch.setenv("MEMORY_UNIT", "MiB")
    flags = ["--memory-unit", "256MiB", "--visible-devices", "index"]
    settings = CliApp.run(DevicePluginSettings, cli_args=flags)
    assert settings.node_name == "from-env"
    assert settings.unit == MemoryUnit(256)
    assert settings.resource_domain == "aliyun.com"
    assert settings.visible_devices == "index"


def test_every_documented_flag_is_taken() -> None:
    """The command line of the documentation is accepted as it stands."""
    text = (
        "--node-name n --kubelet-dir /d --pod-resources-socket /s --kubeconfig /k "
        "--memory-unit GiB --resource-domain example.org"
    )
    settings = CliApp.run(DevicePluginSettings, cli_args=text.split())
    assert (settings.node_name, str(settings.kubelet_dir)) == ("n", "/d")
    assert settings.resource_domain == "example.org"


@pytest.mark.parametrize(
    ("flags", "place"),
    [
        ("", None),
        ("--mps", MpsPlace("", pipe="/tmp/nvidia-mps")),
        ("--mps --mps-pipe /root/nvidia-mps", MpsPlace("", pipe="/root/nvidia-mps")),
        ("--mps-root /run/mps", MpsPlace("/run/mps")),
        ("--mps --mps-root /run/mps", MpsPlace("/run/mps")),
    ],
)
def test_the_flags_of_mps_say_whose_daemons_there_are(flags: str, place: MpsPlace | None) -> None:
    """As in 2019 --mps means the operator's daemon; with a root the plugin runs its own."""
    settings = CliApp.run(DevicePluginSettings, cli_args=["--node-name", "n", *flags.split()])
    assert settings.mps_place == place
    assert settings.mps is ("--mps" in flags.split())


@pytest.mark.parametrize(
    ("name", "value"),
    [("memory_unit", "GB"), ("match_patience", -1), ("clean_probes", 0), ("node_name", "")],
)
def test_a_wrong_value_is_refused(name: str, value: object) -> None:
    """A setting that makes no sense never starts a plugin."""
    with pytest.raises(ValidationError):
        DevicePluginSettings(**{"node_name": "n", name: value})


def test_a_wrong_flag_ends_with_status_two_and_a_sentence(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The exit status distinguishes wrong settings from a failure."""
    monkeypatch.delenv("NODE_NAME", raising=False)
    assert main(["--memory-unit", "GB", "--node-name", "n"]) == 2
    assert "is not a unit of memory" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("flags", "mode"),
    [
        ([], IsolationMode.NONE),
        (["--mps"], IsolationMode.MPS),
        (["--isolation", "driver"], IsolationMode.DRIVER),
        (["--mps", "--isolation", "none"], IsolationMode.NONE),
        (["--isolation", "auto"], None),
    ],
)
def test_the_mode_of_gpus_without_a_label(flags: list[str], mode: IsolationMode | None) -> None:
    """The newer flag is stronger than ``--mps``; ``auto`` leaves the choice to each GPU."""
    settings = CliApp.run(DevicePluginSettings, cli_args=["--node-name", "n", *flags])
    assert settings.default_isolation is mode
    assert settings.driver_limits is False
