"""The files of a run as the machine unpacks them."""

import tarfile
from pathlib import Path

from machine import nodefiles

PORT = 16443


def written(folder: Path, **more: Path) -> Path:
    return nodefiles.write(
        folder,
        machine="h100-r615-2x80",
        key="ssh-ed25519 AAAA",
        port=PORT,
        texts={nodefiles.JOIN: "join", nodefiles.DISCOVERY: "discovery"},
        more=more,
    )


def unpacked(tmp_path: Path) -> Path:
    folder = tmp_path / "unpacked"
    with tarfile.open(written(tmp_path)) as archive:
        assert {member.uid for member in archive.getmembers()} == {0}
        archive.extractall(folder, filter="fully_trusted")
    return folder


def test_pods_reach_the_api_server_of_the_host(tmp_path: Path) -> None:
    rules = (unpacked(tmp_path) / "etc/gpushare/services.nft").read_text()
    assert rules.count("ip daddr 10.96.0.1 tcp dport 443 dnat to 10.0.2.2:16443") == 2


def test_only_root_reads_the_keys_and_the_driver_is_there(tmp_path: Path) -> None:
    folder = unpacked(tmp_path)
    for name in ("root/.ssh/authorized_keys", nodefiles.JOIN.removeprefix("/")):
        assert (folder / name).stat().st_mode & 0o777 == 0o600
    assert {"machine", "state", "nvml"} <= {
        path.name for path in (folder / "opt/gpushare/machine").iterdir()
    }


def test_a_program_of_a_case_replaces_that_of_the_disk(tmp_path: Path) -> None:
    """It is at its path in the machine, and may be executed."""
    program = tmp_path / "earlier"
    program.write_text("#!/bin/sh")
    program.chmod(0o755)
    tar = written(tmp_path, **{"usr/bin/kubelet": program})
    with tarfile.open(tar) as archive:
        assert archive.getmember("usr/bin/kubelet").mode & 0o777 == 0o755


def test_a_machine_that_gets_images_starts_no_kubelet(tmp_path: Path) -> None:
    """The unit has the condition that kubeadm has written kubelet's configuration."""
    with tarfile.open(nodefiles.write_key(tmp_path, "ssh-ed25519 AAAA")) as archive:
        assert archive.getnames() == ["root/.ssh/authorized_keys"]
    unit = Path(nodefiles.__file__).parent / "guest/root/etc/systemd/system/kubelet.service"
    assert "ConditionPathExists=/var/lib/kubelet/config.yaml" in unit.read_text()
