"""One machine in QEMU: its power, its disks, and a shell in it.

Plain emulation on two processors. The machine's own network reaches the loopback of this one at
its gateway; from here only the ports that are named are reached.
"""

import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from environments.processes import ChildProcess, free_port
from host.commands import run_command
from host.errors import SetupError
from host.waiting import until
from machine.disk import Disk

GATEWAY: Final = "10.0.2.2"
"""The loopback of the host, as the machine sees it."""
ADDRESS: Final = "10.0.2.15"
"""Of the machine, in its own network."""
LEASH: Final = ("setpriv", "--pdeathsig=KILL")
"""Has the kernel end a program with the process that started it, however that ends."""
BOOT_SECONDS: Final = 300
SHELL_SECONDS: Final = 300
_MEMORY_MIB: Final = 3072
_PROCESSORS: Final = 2
_KERNEL: Final = (
    "root=/dev/vda rw console=ttyS0 net.ifnames=0 systemd.unified_cgroup_hierarchy=1 "
    "mitigations=off panic=1"
)


class Qemu:
    """A machine that is off until :meth:`power_on`.

    Args:
        disk: its kernel.
        folder: of this run, with the key to log in.
        base: the disk below; what the machine writes goes to an overlay in ``folder``.
        seeds: more disks, raw and read-only, in order: /dev/vdb and so on.
        ports: of the machine, by the port of the loopback here.
    """

    def __init__(
        self,
        disk: Disk,
        folder: Path,
        *,
        base: Path,
        seeds: tuple[Path, ...],
        ports: Mapping[int, int],
    ) -> None:
        self._disk = disk
        self._folder = folder
        self._base = base
        self._seeds = seeds
        self._ssh = free_port()
        self._ports = {**ports, self._ssh: 22}
        self.overlay = folder / "overlay.qcow2"
        self._process: ChildProcess | None = None

    @staticmethod
    def make_key(folder: Path) -> str:
        """A new key to log in with, in ``folder``; the public half."""
        command: list[str | Path] = ["ssh-keygen", "-q", "-t", "ed25519", "-N", ""]
        command += ["-f", folder / "key"]
        run_command(command, timeout_s=60)
        return (folder / "key.pub").read_text()

    def power_on(self) -> None:
        """Switch it on, with the disk as it was left; returns when a shell answers."""
        if not self.overlay.exists():
            below = self._base.suffix.removeprefix(".")
            options = ("-f", "qcow2", "-F", below, "-b", self._base)
            run_command(["qemu-img", "create", "-q", *options, self.overlay], timeout_s=60)
        self._process = ChildProcess("machine", self.command(), folder=self._folder)
        self.wait_shell()

    def power_off(self) -> None:
        """Shut it down as an administrator does; returns when it is off."""
        assert self._process is not None
        self._give("systemctl poweroff")
        process = self._process
        until("the machine is off", lambda: not process.alive(), seconds=BOOT_SECONDS)

    def power_cut(self) -> None:
        """Take its power away: nothing of what it has in memory is written."""
        assert self._process is not None
        self._process.kill()

    def stop(self) -> None:
        """The same, also where it is off."""
        if self._process is not None and self._process.alive():
            self._process.kill()

    def shell(self, script: str, *, seconds: float = SHELL_SECONDS) -> str:
        """Output of a script that root runs in the machine.

        Raises:
            SetupError: it failed or did not end in time.
        """
        return run_command([*self._login(), script], timeout_s=seconds)

    def wait_shell(self, *, other_than: str = "") -> None:
        """Wait until it runs and answers; after the boot with another id, if one is given."""

        def answered() -> bool:
            assert self._process is not None
            self._process.demand_alive()
            found = self.boot_id()
            return bool(found) and found != other_than

        until("the machine answers", answered, seconds=BOOT_SECONDS)

    def boot_id(self) -> str:
        """Differs after every boot; empty where the machine does not answer."""
        try:
            return self.shell("cat /proc/sys/kernel/random/boot_id", seconds=20).strip()
        except SetupError:
            return ""

    def reboot(self) -> None:
        """Reboot it as an administrator does; returns when a shell answers again."""
        before = self.boot_id()
        self._give("systemctl reboot")
        self.wait_shell(other_than=before)

    def _give(self, script: str) -> None:
        """Run a script that ends the connection."""
        command = [*self._login(), script]
        subprocess.run(command, check=False, capture_output=True, timeout=SHELL_SECONDS)

    def _login(self) -> list[str]:
        options = {
            "StrictHostKeyChecking": "no",
            "UserKnownHostsFile": "/dev/null",
            "LogLevel": "ERROR",
            "BatchMode": "yes",
            "ConnectTimeout": "15",
        }
        words = [word for name, value in options.items() for word in ("-o", f"{name}={value}")]
        where = ["-p", str(self._ssh), "-i", str(self._folder / "key"), "root@127.0.0.1"]
        return ["ssh", "-F", "none", *words, *where]

    def command(self) -> list[str | Path]:
        """The command line of the machine."""
        forwarded = "".join(
            f",hostfwd=tcp:127.0.0.1:{here}-:{there}" for here, there in self._ports.items()
        )
        seeds = [
            word
            for seed in self._seeds
            for word in ("-drive", f"file={seed},format=raw,if=virtio,readonly=on")
        ]
        return [
            *(*LEASH, "qemu-system-x86_64"),
            *("-machine", "q35", "-accel", "tcg,thread=multi", "-cpu", "max"),
            *("-smp", str(_PROCESSORS), "-m", str(_MEMORY_MIB)),
            *("-nodefaults", "-no-user-config", "-display", "none", "-serial", "stdio"),
            *("-device", "virtio-rng-pci"),
            *("-kernel", self._disk.kernel, "-initrd", self._disk.initrd, "-append", _KERNEL),
            *("-drive", f"file={self.overlay},format=qcow2,if=virtio,cache=writeback"),
            *seeds,
            *("-netdev", f"user,id=net{forwarded}", "-device", "virtio-net-pci,netdev=net"),
        ]
