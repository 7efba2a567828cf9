"""The command line of QEMU: emulation only, the loopback only, and an end with the run."""

import subprocess
import sys
from pathlib import Path

import pytest

from host.waiting import until
from machine.disk import Disk
from machine.qemu import LEASH, Qemu

# It is killed long before: the bound is for a test that fails.
STARTS_AND_WAITS = """
import subprocess, sys, time
print(subprocess.Popen(sys.argv[1:]).pid, flush=True)
time.sleep(60)
"""


def words(folder: Path) -> list[str]:
    disk = Disk(folder, "pause:1")
    files = folder / "files.tar"
    machine = Qemu(disk, folder, base=folder / "root.raw", seeds=(files,), ports={12345: 12345})
    return [str(word) for word in machine.command()]


def test_hardware_acceleration_is_never_used(tmp_path: Path) -> None:
    found = words(tmp_path)
    assert found[found.index("-accel") + 1] == "tcg,thread=multi"
    assert not [word for word in found if "kvm" in word]


def test_ports_are_those_of_the_loopback(tmp_path: Path) -> None:
    network = next(word for word in words(tmp_path) if word.startswith("user,"))
    forwarded = [each for each in network.split(",") if each.startswith("hostfwd=")]
    assert "hostfwd=tcp:127.0.0.1:12345-:12345" in forwarded
    assert all(each.startswith("hostfwd=tcp:127.0.0.1:") for each in forwarded)


def test_only_the_overlay_is_written(tmp_path: Path) -> None:
    drives = [word for word in words(tmp_path) if word.startswith("file=")]
    written = [drive for drive in drives if "readonly=on" not in drive]
    assert written == [f"file={tmp_path}/overlay.qcow2,format=qcow2,if=virtio,cache=writeback"]


def alive(pid: int) -> bool:
    """Whether a process runs; one that has ended may still be listed."""
    try:
        return ") Z " not in Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False


@pytest.mark.slow
def test_qemu_ends_with_a_run_that_is_killed() -> None:
    """Nothing can be cleaned up by a process that is killed, so the kernel does it."""
    command = [sys.executable, "-c", STARTS_AND_WAITS, *LEASH, "sleep", "60"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as run:
        assert run.stdout is not None
        pid = int(run.stdout.readline())
        # setpriv has become the program once the kernel knows of its parent
        until(
            "it runs",
            lambda: Path(f"/proc/{pid}/comm").read_text().strip() == "sleep",
            seconds=30,
        )
        run.kill()
    until("it ends", lambda: not alive(pid), seconds=30)
