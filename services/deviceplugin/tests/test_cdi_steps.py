"""The CDI files, write by write, as a runtime that reads at any moment finds them."""

import errno
import os
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from gpucore.model import Gpu, Inventory
from gpucore.node.allocation.device_ids import Resource
from gpucore.node.grant import GrantPolicy, grant
from gpucore.node.isolation.cdi import CdiDevice
from gpucore.units import GpuIndex, GpuUuid, NodeName
from gpucore.wire.node.spec import Node
from gpudeviceplugin.isolation.cdi import NOTED_SECONDS, CdiFiles

INVENTORY = Inventory(gpus=(Gpu(GpuIndex(0), GpuUuid("GPU-0"), 15),))


def device(units: int) -> CdiDevice:
    """The device of a share of GPU 0."""
    share = grant(Resource.MEM, {GpuIndex(0): units}, INVENTORY, GrantPolicy(cdi=True)).share
    assert share is not None
    return share


def held(*units: int) -> dict[str, CdiDevice]:
    """Kubelet's account: containers with these shares."""
    return {each.name: each for each in map(device, units)}


def names(folder: Path) -> set[str]:
    """All files."""
    return {path.name for path in folder.iterdir()}


def name_of(units: int) -> str:
    return f"gpushare.io-share_{device(units).name}.json"


def test_a_file_appears_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is written under a name that no runtime reads, and then renamed."""
    seen: list[tuple[str, bytes]] = []
    replace = Path.replace

    def noted(self: Path, target: Path) -> Path:
        seen.append((self.suffix, self.read_bytes()))
        assert not target.exists()
        return replace(self, target)

    monkeypatch.setattr(Path, "replace", noted)
    CdiFiles(tmp_path, "on").deliver(device(3))
    assert seen == [(".unfinished", device(3).spec)]
    assert names(tmp_path) == {name_of(3)}


def test_a_file_that_could_not_be_finished_is_written_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What failed is not remembered as written."""
    files = CdiFiles(tmp_path, "on")
    files.deliver(device(3))
    changed = CdiDevice(device(3).name, b'{"devices": []}', device(3).visible)

    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", full)
        with pytest.raises(OSError, match="No space"):
            files.deliver(changed)
    assert (tmp_path / name_of(3)).read_bytes() == device(3).spec
    files.deliver(changed)
    assert (tmp_path / name_of(3)).read_bytes() == changed.spec


def test_a_device_that_was_removed_is_written_when_it_is_held_again(tmp_path: Path) -> None:
    """An orphan is forgotten, too; a file that is already gone is no error."""
    files = CdiFiles(tmp_path, "on")
    files.sync(held(3, 4), [])
    assert names(tmp_path) == {name_of(3), name_of(4)}
    (tmp_path / name_of(3)).unlink()
    with capture_logs() as logged:
        files.sync(held(4), [])
        files.sync(held(4), [])
    assert logged == []
    assert set(files._known()) == set(held(4)), "what is remembered stays as small as the folder"
    files.sync(held(3, 4), [])
    assert names(tmp_path) == {name_of(3), name_of(4)}


def test_an_incomplete_account_removes_no_file(tmp_path: Path) -> None:
    """What it lists is written, what it lacks stays."""
    files = CdiFiles(tmp_path, "on")
    files.sync(held(3), [])
    files.restore(held(4))
    assert names(tmp_path) == {name_of(3), name_of(4)}


def test_a_grant_keeps_its_file_for_a_minute_without_kubelets_account(tmp_path: Path) -> None:
    """To the second; a second grant counts anew."""
    now = [0.0]
    files = CdiFiles(tmp_path, "on", clock=lambda: now[0])
    files.deliver(device(3))
    now[0] = NOTED_SECONDS - 1
    files.sync({}, [])
    assert names(tmp_path) == {name_of(3)}
    files.deliver(device(3))
    now[0] += NOTED_SECONDS - 1
    files.sync({}, [])
    assert names(tmp_path) == {name_of(3)}
    now[0] += 1
    files.sync({}, [])
    assert names(tmp_path) == set()


def test_a_directory_that_cannot_be_written_is_logged_and_no_end(tmp_path: Path) -> None:
    """Kubelet's allocations are accepted all the same."""
    files = CdiFiles(tmp_path / "missing", "on")
    with capture_logs() as logged:
        files.sync(held(3), [])
    (line,) = logged
    assert line["event"] == "cannot bring the CDI files up to date"
    assert line["log_level"] == "warning"


@pytest.mark.parametrize("allowed", [os.W_OK, os.X_OK, os.R_OK, os.W_OK | os.X_OK])
def test_a_directory_must_be_writable_and_searchable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, allowed: int
) -> None:
    """With auto; else the limits would come from files that are never written."""
    node = Node(NodeName("n1"), kubelet="v1.34.0", runtime="containerd://2.1.0")
    monkeypatch.setattr(os, "access", lambda _path, mode: mode & allowed == mode)
    used = CdiFiles(tmp_path, "auto").used_on(node)
    assert used is (allowed == os.W_OK | os.X_OK)


def test_a_directory_that_is_not_writable_is_reported_once(tmp_path: Path) -> None:
    """It is looked at every few seconds; it is reported again where it was writable meanwhile."""
    node = Node(NodeName("n1"), kubelet="v1.34.0", runtime="containerd://2.1.0")
    files = CdiFiles(tmp_path / "cdi", "auto")
    with capture_logs() as logged:
        assert not any(files.used_on(node) for _ in range(3))
        assert len(logged) == 1
        (tmp_path / "cdi").mkdir()
        assert files.used_on(node)
        (tmp_path / "cdi").rmdir()
        assert not any(files.used_on(node) for _ in range(3))
        assert [line["event"] for line in logged] == ["no CDI: the directory is not writable"] * 2


def test_a_copy_of_a_file_under_another_name_is_not_ours(tmp_path: Path) -> None:
    """A backup copy is neither read nor removed."""
    CdiFiles(tmp_path, "on").deliver(device(3))
    (tmp_path / name_of(3)).rename(tmp_path / "gpushare.io-share_backup.json")
    files = CdiFiles(tmp_path, "on")
    files.sync({}, [])
    assert names(tmp_path) == {"gpushare.io-share_backup.json"}
