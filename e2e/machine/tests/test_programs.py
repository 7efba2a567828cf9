"""What is installed before a machine in QEMU can be made, and why it may not be."""

import os
import platform

import pytest

from host import apt
from host.errors import SetupError
from host.testing.fakeprograms import FakePrograms
from machine import programs as needed


@pytest.fixture(autouse=True)
def on_amd64_as_root(monkeypatch: pytest.MonkeyPatch) -> None:
    """This machine has an x86_64 processor, and the test is root on it."""
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    monkeypatch.setattr(os, "geteuid", lambda: 0)


def test_another_architecture_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "aarch64")
    with pytest.raises(SetupError, match="made on amd64 only"):
        needed.ensure()


def test_without_root_the_reason_is_named(
    programs: FakePrograms, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(SetupError, match="needs root or passwordless sudo"):
        needed.ensure()
    assert programs.calls() == []


def test_only_what_is_missing_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[list[str]] = []
    present = {"ssh", "setpriv", "mkfs.ext4", "apt-get"}
    monkeypatch.setattr(needed, "installed", lambda program: program in present)
    monkeypatch.setattr(apt, "as_root", lambda words, **_: asked.append(words))
    needed.ensure()
    (words,) = asked
    assert words[0] == "apt-get"
    assert words[-2:] == ["qemu-system-x86", "qemu-utils"]


def test_a_machine_without_apt_is_told_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(needed, "installed", lambda program: program == "ssh")
    with pytest.raises(SetupError, match="install qemu-system-x86, qemu-utils"):
        needed.ensure()
