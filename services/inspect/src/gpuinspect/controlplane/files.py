"""The node's files: read as they are, written so that kubelet never sees half of one.

All files of gpushare are in one folder outside that of the manifests, for kubelet takes every file
there for a pod. A configuration can hold a private key, so only root may read it.
"""

import contextlib
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Final

from gpuinspect.controlplane import manifest
from gpuinspect.controlplane.plan import BACKUP, MANIFEST, ChangePlan, FileChange, SchedulerFiles
from gpuinspect.errors import ControlPlaneError, InspectError

_PRIVATE: Final = 0o600
_FOLDER: Final = 0o700
_ENDING: Final = (signal.SIGTERM, signal.SIGHUP)
_SHELL_OFFSET: Final = 128
"""Exit status of a program that a signal ended, less the number of the signal."""
Wait = Callable[[str], None]
"""Returns when kube-scheduler runs with this ``--config``; raises an InspectError otherwise."""


class Files:
    """The files of one control-plane node.

    Args:
        root: where its root folder is seen from here.
    """

    def __init__(self, root: Path) -> None:
        self._root = root

    def found(self) -> SchedulerFiles:
        """The files that a plan is made from.

        Raises:
            ControlPlaneError: there is no manifest, or one of the files cannot be read.
        """
        text = self._text(MANIFEST)
        if text is None:
            raise ControlPlaneError(
                f"{self._at(MANIFEST)} does not exist: kubeadm's scheduler does not "
                "run on this node"
            )
        pod = manifest.read(text)
        original = self._text(BACKUP)
        base = manifest.read(original) if pod.ours and original is not None else pod
        return SchedulerFiles(
            manifest=text,
            original=original,
            config=self._text(base.flags.get(manifest.CONFIG, "")),
            policy=self._text(base.flags.get(manifest.POLICY, "")),
            installed=self._text(pod.ours),
        )

    def hostname(self) -> str:
        """Name of the node, as kubelet's default gives it."""
        return (self._text("/etc/hostname") or os.uname().nodename).strip().lower()

    def admin(self) -> Path | None:
        """Kubeadm's kubeconfig of the node, where there is one."""
        path = self._at("/etc/kubernetes/admin.conf")
        return path if path.exists() else None

    def write(self, change: FileChange) -> None:
        """Carry out one change.

        Raises:
            ControlPlaneError: the file cannot be written; it is as it was.
        """
        path = self._at(change.path)
        try:
            if change.after is None:
                path.unlink(missing_ok=True)
            else:
                path.parent.mkdir(mode=_FOLDER, exist_ok=True)
                _replace(path, change.after.encode())
        except OSError as error:
            raise ControlPlaneError(f"cannot write {path}: {error.strerror}") from error

    def obsolete(self, *, keep: str) -> list[Path]:
        """All configurations of gpushare but one, by name; without one, the backup too."""
        kept = {keep, BACKUP} if keep else set()
        found = self._at(manifest.FOLDER).glob("*.yaml")
        return sorted(path for path in found if f"{manifest.FOLDER}/{path.name}" not in kept)

    def tidy(self, *, keep: str) -> None:
        """Remove what is :meth:`obsolete`; without a configuration to keep, the folder too."""
        for path in self.obsolete(keep=keep):
            path.unlink(missing_ok=True)
        if not keep:
            with contextlib.suppress(OSError):  # the folder has files of other programs
                self._at(manifest.FOLDER).rmdir()

    def _at(self, path: str) -> Path:
        return self._root / path.lstrip("/")

    def _text(self, path: str) -> str | None:
        """Line ends are left as they are: what is put back is what was there."""
        if not path:
            return None
        try:
            return self._at(path).read_bytes().decode()
        except FileNotFoundError:
            return None
        except (OSError, UnicodeDecodeError) as error:
            raise ControlPlaneError(f"cannot read {self._at(path)}: {error}") from error


def _replace(path: Path, raw: bytes) -> None:
    """Replace a file atomically, with its mode; kubelet ignores names that begin with a dot."""
    mode = path.stat().st_mode & 0o777 if path.exists() else _PRIVATE
    temporary = path.with_name(f".{path.name}.gpushare")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(raw)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:  # it may have a private key
        temporary.unlink(missing_ok=True)
        raise


def carry_out(plan: ChangePlan, files: Files, wait: Wait, *, before: str) -> None:
    """Make all changes and wait for the scheduler; on failure put everything back and wait again.

    So too when the process is to end: by ``kill``, systemd or a closed terminal.

    Args:
        before: the ``--config`` that gpushare wrote for the scheduler before; empty where none.

    Raises:
        InspectError: it did not work; the manifest is as it was before.
        SystemExit: SIGTERM or SIGHUP came; likewise.
    """
    with _ending_raised():
        _carry_out(plan, files, wait, before)


def _carry_out(plan: ChangePlan, files: Files, wait: Wait, before: str) -> None:
    done: list[FileChange] = []
    try:
        for change in plan.changes:
            files.write(change)
            done.append(change)
        wait(plan.config)
    except BaseException:  # an interrupted command must not leave a broken scheduler either
        for change in reversed(done):
            files.write(FileChange(change.path, change.after, change.before))
        if done:
            _again(wait, before)
        raise
    files.tidy(keep=plan.config)


def _again(wait: Wait, config: str) -> None:
    """Wait for the restored scheduler; its own failure is worse and is reported first."""
    try:
        wait(config)
    except InspectError as error:
        raise type(error)(f"the manifest was restored, but {error}") from error


@contextmanager
def _ending_raised() -> Iterator[None]:
    """Raise SystemExit in the block for the first of :data:`_ENDING`, and ignore later ones.

    A signal with another handler keeps it; ``nohup`` ignores SIGHUP. For the main thread only.
    """
    caught = [each for each in _ENDING if signal.getsignal(each) is signal.SIG_DFL]

    def end(number: int, _frame: FrameType | None) -> None:
        for each in caught:
            signal.signal(each, signal.SIG_IGN)
        raise SystemExit(_SHELL_OFFSET + number)

    for each in caught:
        signal.signal(each, end)
    try:
        yield
    finally:
        for each in caught:
            signal.signal(each, signal.SIG_DFL)
