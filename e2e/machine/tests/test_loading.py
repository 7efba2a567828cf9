"""Images get into the machine once: its disk is kept by their names."""

from pathlib import Path

import pytest

from host import cachedir, docker
from machine import loading
from machine.disk import Disk


@pytest.mark.usefixtures("cache")
def test_images_are_imported_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scripts: list[str] = []
    done: list[str] = []

    class Machine:
        def __init__(self, _: Disk, folder: Path, **more: object) -> None:
            self.overlay = folder / "overlay.qcow2"

        @staticmethod
        def make_key(folder: Path) -> str:
            return "ssh-ed25519 AAAA"

        def power_on(self) -> None:
            self.overlay.write_text("loaded")

        def shell(self, script: str, *, seconds: float) -> None:
            scripts.append(script)

        def power_off(self) -> None:
            done.append("off")

        def stop(self) -> None:
            done.append("stopped")

    monkeypatch.setattr(loading, "Qemu", Machine)
    monkeypatch.setattr(docker, "save", lambda images, file: file.touch())
    disk = Disk(tmp_path / "machine-123456789abc", "pause:1")
    first = loading.ensure(disk, ["plugin:1", "pause:1"])
    assert loading.ensure(disk, ["plugin:1", "pause:1"]) == first
    assert first.read_text() == "loaded"
    assert first.is_relative_to(cachedir.root())
    assert done == ["off", "stopped"]
    (script,) = scripts
    assert "images import /dev/vdc" in script
    assert loading.ensure(disk, ["plugin:2", "pause:1"]) != first
