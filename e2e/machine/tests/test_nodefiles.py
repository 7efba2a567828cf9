"""The files of a run as the machine unpacks them."""

import json
import tarfile
from pathlib import Path

from machine import nodefiles

URL = "https://127.0.0.1:16443"
TOKEN = "secret"


def unpacked(tmp_path: Path) -> Path:
    config = nodefiles.kubeconfig(URL, TOKEN)
    tar = nodefiles.write(
        tmp_path, machine="h100-r615-2x80", port=12345, key="ssh-ed25519 AAAA", kubeconfig=config
    )
    folder = tmp_path / "unpacked"
    with tarfile.open(tar) as archive:
        assert {member.uid for member in archive.getmembers()} == {0}
        archive.extractall(folder, filter="fully_trusted")
    return folder


def test_what_users_have_by_default_is_not_configured(tmp_path: Path) -> None:
    """Neither cgroup v1, nor swap, nor a feature gate is named, so kubelet's defaults apply."""
    config = json.loads((unpacked(tmp_path) / "etc/gpushare/kubelet.yaml").read_text())
    assert config["cgroupDriver"] == "systemd"
    assert not config.keys() & {"failCgroupV1", "failSwapOn", "featureGates", "evictionHard"}


def test_kubelet_and_pods_reach_the_api_server_of_the_host(tmp_path: Path) -> None:
    folder = unpacked(tmp_path)
    config = json.loads((folder / "etc/gpushare/kubeconfig").read_text())
    assert config["clusters"][0]["cluster"]["server"] == "https://10.0.2.2:16443"
    rules = (folder / "etc/gpushare/services.nft").read_text()
    assert rules.count("ip daddr 10.96.0.1 tcp dport 443 dnat to 10.0.2.2:16443") == 2


def test_only_root_reads_the_keys_and_the_driver_is_there(tmp_path: Path) -> None:
    folder = unpacked(tmp_path)
    keys = folder / "root/.ssh/authorized_keys"
    assert keys.stat().st_mode & 0o777 == 0o600
    assert {"machine", "state", "nvml"} <= {
        path.name for path in (folder / "opt/gpushare/machine").iterdir()
    }


def test_a_program_of_a_case_replaces_that_of_the_disk(tmp_path: Path) -> None:
    """It is at its path in the machine, and may be executed."""
    program = tmp_path / "earlier"
    program.write_text("#!/bin/sh")
    program.chmod(0o755)
    tar = nodefiles.write(
        tmp_path,
        machine="h100-r615-2x80",
        port=12345,
        key="ssh-ed25519 AAAA",
        kubeconfig=nodefiles.kubeconfig(URL, TOKEN),
        more={"usr/bin/kubelet": program},
    )
    with tarfile.open(tar) as archive:
        assert archive.getmember("usr/bin/kubelet").mode & 0o777 == 0o755


def test_a_machine_that_gets_images_starts_no_kubelet(tmp_path: Path) -> None:
    """The unit has the condition that kubelet's configuration is there."""
    with tarfile.open(nodefiles.write_key(tmp_path, "ssh-ed25519 AAAA")) as archive:
        assert archive.getnames() == ["root/.ssh/authorized_keys"]
    unit = Path(nodefiles.__file__).parent / "guest/root/etc/systemd/system/kubelet.service"
    assert "ConditionPathExists=/etc/gpushare/kubelet.yaml" in unit.read_text()
