"""Flags, environment and defaults."""

import json
import subprocess
import sys

import pytest

from gpucore.model import IsolationMode
from gpucore.node.isolation.mps_grant import MpsPlace
from gpucore.units import MemoryUnit
from gpudeviceplugin.__main__ import main
from gpudeviceplugin.command_line import SettingsError, read, settings_of
from gpudeviceplugin.settings import DevicePluginSettings


def settings(*flags: str, **variables: str) -> DevicePluginSettings:
    """The settings that these flags and variables make on a node named n."""
    given = ["--node-name=n", *flags]
    return read(DevicePluginSettings, given, variables, program="plugin")


def test_every_documented_flag_is_taken() -> None:
    """The command line of the documentation is accepted as it stands."""
    text = (
        "--kubelet-dir /d --pod-resources-socket /s --kubeconfig /k "
        "--memory-unit GiB --resource-domain example.org"
    )
    made = settings(*text.split())
    assert (made.node_name, str(made.kubelet_dir)) == ("n", "/d")
    assert made.resource_domain == "example.org"


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
    made = settings(*flags.split())
    assert made.mps_place == place
    assert made.mps is ("--mps" in flags.split())


@pytest.mark.parametrize(
    ("flag", "sentence"),
    [
        ("--memory-unit=GB", "use GiB, MiB or a size such as 256MiB"),
        ("--match-patience=-1", "expected a number >= 0"),
        ("--clean-probes=0", "expected an integer >= 1"),
        ("--listen-port=65536", "expected an integer <= 65535"),
        ("--usage-seconds=nan", "expected a number > 0"),
        ("--isolation=strong", "use one of '', none, mps, driver, driver+mps, auto"),
        ("--visible-devices=name", "use one of uuid, index"),
        ("--ignored-xids=13,x", "use numbers separated by commas, or a JSON array of numbers"),
        ("--node-name=", "expected text of length >= 1"),
    ],
)
def test_a_wrong_value_is_refused(flag: str, sentence: str) -> None:
    """A setting that makes no sense never starts a plugin; the error names flag and remedy."""
    name, _, value = flag.partition("=")
    with pytest.raises(SettingsError) as caught:
        settings(flag)
    (fault,) = caught.value.faults
    assert fault.startswith(f"{name}: {value!r} is not accepted: ")
    assert sentence in fault


def test_the_unit_of_memory_is_written_as_the_inventory_writes_it() -> None:
    """Two names of one size are one setting."""
    made = settings("--memory-unit=1024MiB")
    assert (made.memory_unit, made.unit) == ("GiB", MemoryUnit(1024))


def test_a_wrong_flag_ends_with_status_two_and_a_sentence(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The exit status distinguishes wrong settings from a failure; every fault has its line."""
    assert main(["--memory-unit", "GB", "--listen-port=x"]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert [line.partition(": ")[0] for line in lines] == ["gpushare-device-plugin"] * 3
    assert "set --node-name or NODE_NAME" in lines[0]
    assert "'GB' is not a unit of memory" in lines[1]
    assert "--listen-port: 'x' is not accepted: expected an integer" in lines[2]


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
    made = settings(*flags)
    assert made.default_isolation is mode
    assert made.driver_limits is False


@pytest.mark.slow
def test_the_first_line_of_the_log_has_every_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process without an API server starts, logs what it was given, and ends with status 1."""
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    command = [sys.executable, "-m", "gpudeviceplugin", "--node-name=n", "--kubeconfig=/no/file"]
    flags = ["--ignored-xids=13", "--mps", "--memory-unit=1024MiB", "--visible-devices=index"]
    ended = subprocess.run(
        [*command, *flags], stderr=subprocess.PIPE, check=False, text=True, timeout=60
    )
    line = json.loads(ended.stderr.splitlines()[0])
    assert (ended.returncode, line["event"]) == (1, "starting")
    names = {setting.name for setting in settings_of(DevicePluginSettings)}
    assert names <= line.keys()
    assert (line["kubeconfig"], line["ignored_xids"], line["mps"]) == ("/no/file", [13], True)
    assert (line["memory_unit"], line["visible_devices"]) == ("GiB", "index")
    assert (line["cdi_dir"], line["record_dir"], line["match_patience"]) == (
        "/var/run/cdi",
        None,
        0.3,
    )
