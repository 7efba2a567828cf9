"""When the emulator is registered, and what is called for it."""

import platform
from collections.abc import Sequence
from pathlib import Path

import pytest

from host import apt, emulation
from host.architecture import Architecture
from host.errors import SetupError

ARM: Architecture = Architecture("arm64", "aarch64")
DESCRIPTION = ":qemu-aarch64:M::magic:mask:/emulator:POF"


@pytest.fixture(autouse=True)
def on_amd64(monkeypatch: pytest.MonkeyPatch) -> None:
    """This machine has an x86_64 processor, and the process is root."""
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    monkeypatch.setattr(emulation, "can_be_root", lambda: True)


class Kernel:
    """A registry of formats in a folder, and the commands that were run as root."""

    def __init__(self, folder: Path, flags: str) -> None:
        self.formats, self.descriptions = folder / "formats", folder / "descriptions"
        self.formats.mkdir()
        self.descriptions.mkdir()
        self.calls: list[str] = []
        self._flags = flags

    def register(self, flags: str) -> None:
        """As the kernel shows a format."""
        (self.formats / "qemu-aarch64").write_text(f"enabled\ninterpreter /e\nflags: {flags}\n")

    def as_root(
        self, argv: Sequence[str | Path], *, timeout_s: float, stdin: str | None = None
    ) -> str:
        """What the commands do to the folder, in `timeout_s` seconds at most."""
        assert timeout_s > 0
        self.calls.append(f"{argv[0]} {Path(argv[-1]).name} {stdin or ''}".strip())
        if argv[0] == "apt-get":
            (self.descriptions / "qemu-aarch64.conf").write_text(DESCRIPTION)
        if stdin == DESCRIPTION:
            self.register(self._flags)
        return ""

    def ensure(self) -> None:
        """The call under test."""
        emulation.ensure(ARM, formats=self.formats, descriptions=self.descriptions)


def kernel(folder: Path, monkeypatch: pytest.MonkeyPatch, flags: str = "POF") -> Kernel:
    """A kernel that has no format yet; what it registers has these flags."""
    found = Kernel(folder, flags)
    monkeypatch.setattr(emulation, "as_root", found.as_root)
    monkeypatch.setattr(apt, "as_root", found.as_root)
    return found


def test_a_bare_machine_gets_the_emulator(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The package is installed, the registry mounted, and the package's own description written."""
    bare = kernel(tmp_path, monkeypatch)
    bare.ensure()
    assert bare.calls == [
        "apt-get qemu-user-static",
        "mount formats",
        f"tee register {DESCRIPTION}",
    ]


def test_a_format_that_is_registered_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is run as root."""
    ready = kernel(tmp_path, monkeypatch)
    ready.register("OCF")
    ready.ensure()
    assert ready.calls == []


def test_a_format_that_containers_cannot_use_is_registered_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without flag F the kernel looks for the emulator in the container."""
    old = kernel(tmp_path, monkeypatch)
    (old.formats / "register").write_text("")
    old.register("P")
    old.ensure()
    assert old.calls[1:] == ["tee qemu-aarch64 -1", f"tee register {DESCRIPTION}"]


def test_a_kernel_that_registers_nothing_usable_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The build ends there, not in the first program of the other architecture."""
    with pytest.raises(SetupError, match="did not register qemu-aarch64"):
        kernel(tmp_path, monkeypatch, flags="P").ensure()


def test_who_cannot_be_root_learns_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No command is tried."""
    found = kernel(tmp_path, monkeypatch)
    monkeypatch.setattr(emulation, "can_be_root", lambda: False)
    with pytest.raises(SetupError, match="install qemu-user-static"):
        found.ensure()
    assert found.calls == []


def test_this_machines_own_programs_need_no_emulator(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever is registered."""
    monkeypatch.setattr(platform, "machine", lambda: "aarch64")
    found = kernel(tmp_path, monkeypatch)
    found.ensure()
    assert found.calls == []
