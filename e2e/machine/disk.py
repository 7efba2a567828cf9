"""The disk of the machine, made of Debian packages once and kept in the cache folder.

The image of the engine is made first, because its builder remembers steps; the disk is its files.
"""

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import offline
from host import cachedir, docker
from host.commands import run_command
from host.privilege import as_root
from host.progress import step

_GUEST: Final = Path(__file__).parent / "guest"
_PROGRAMS: Final = ("kubeadm", "kubelet", "containerd", "containerd-shim-runc-v2", "ctr")
_SIZE: Final = "8G"
"""Of a sparse file; kubelet evicts pods when less than 15 % is free."""
_COPY_SECONDS: Final = 600


@dataclass(frozen=True)
class Disk:
    """What QEMU boots.

    Attributes:
        pause: name of the image of pods' sandboxes, which the machine gets with the others.
    """

    folder: Path
    pause: str

    @property
    def root(self) -> Path:
        """The root file system as a raw disk, never written to."""
        return self.folder / "root.raw"

    @property
    def kernel(self) -> Path:
        """Of Debian's cloud kernel."""
        return self.folder / "vmlinuz"

    @property
    def initrd(self) -> Path:
        """Of the same kernel."""
        return self.folder / "initrd.img"


def ensure(version: str) -> Disk:
    """The disk with the kubelet of a version, made if needed; two minutes the first time.

    Raises:
        SetupError: a package or program cannot be had.
    """
    programs = offline.ensure_programs(version)
    pause = offline.ensure_pause_image(version)
    base = offline.ensure_debian_image()
    files = [path for path in _GUEST.rglob("*") if path.is_file()]
    inputs = [base, pause, str(programs), _SIZE, cachedir.code(Path(__file__))]
    key = cachedir.content_key(inputs, files)

    def fill(folder: Path) -> None:
        tag = f"gpushare/machine:{key}"
        _build(tag, base=base, pause=pause, programs=programs)
        with step("make the disk of the machine"):
            _export(tag, folder)
        docker.remove([tag])

    return Disk(cachedir.entry("machine", key, fill), pause)


def _build(tag: str, *, base: str, pause: str, programs: Path) -> None:
    with tempfile.TemporaryDirectory(dir=cachedir.root(), prefix="context-") as name:
        context = Path(name)
        run_command(["cp", "-r", _GUEST, context / "guest"], timeout_s=_COPY_SECONDS)
        (context / "programs").mkdir()
        names = [programs / each for each in _PROGRAMS]
        run_command(["cp", *names, context / "programs"], timeout_s=_COPY_SECONDS)
        with step("build the system of the machine"):
            docker.build(
                tag,
                context=context,
                dockerfile=context / "guest/machine.Dockerfile",
                arguments={"BASE": base, "PAUSE": pause},
            )


def _export(tag: str, folder: Path) -> None:
    """Write kernel and disk; as root, so that files have their owners."""
    container = run_command(["docker", "create", tag, "true"], timeout_s=60).strip()
    tree, tar = folder / "tree", folder / "tree.tar"
    try:
        command = ["docker", "export", f"--output={tar}", container]
        run_command(command, timeout_s=_COPY_SECONDS)
    finally:
        run_command(["docker", "rm", container], timeout_s=60)
    tree.mkdir()
    as_root(["tar", "-C", tree, "-xpf", tar], timeout_s=_COPY_SECONDS)
    tar.unlink()
    for name in ("vmlinuz", "initrd.img"):
        as_root(["cp", tree / "boot" / name, folder / name], timeout_s=60)
        as_root(["chmod", "0644", folder / name], timeout_s=60)
    # The engine writes these for its containers.
    for name in ("etc/hostname", "etc/hosts", "etc/resolv.conf", ".dockerenv"):
        as_root(["rm", "-f", tree / name], timeout_s=60)
    as_root(["tee", tree / "etc/hosts"], timeout_s=60, stdin="127.0.0.1 localhost\n")
    as_root(["tee", tree / "etc/hostname"], timeout_s=60, stdin="machine\n")
    as_root(["tee", tree / "etc/resolv.conf"], timeout_s=60, stdin="")
    disk = folder / "root.raw"
    as_root(["mkfs.ext4", "-q", "-d", tree, disk, _SIZE], timeout_s=_COPY_SECONDS)
    as_root(["chmod", "0644", disk], timeout_s=60)
    as_root(["rm", "-rf", tree], timeout_s=_COPY_SECONDS)
