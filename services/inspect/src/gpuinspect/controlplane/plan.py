"""What would be written, as values: for a person to read first, and to be carried out after.

The manifest that was there before is kept beside our configuration, and everything is always made
from it anew: installing twice changes nothing, and uninstalling gives back the same bytes. Where
the manifest was edited in the meantime, both refuse.
"""

import difflib
import hashlib
from collections.abc import Iterator
from typing import Final

import msgspec

from gpuinspect.controlplane import configuration, manifest
from gpuinspect.controlplane.configuration import SchedulerOffer
from gpuinspect.errors import ControlPlaneError

MANIFEST: Final = "/etc/kubernetes/manifests/kube-scheduler.yaml"
BACKUP: Final = f"{manifest.FOLDER}/kube-scheduler.yaml"
_CHANGED: Final = (
    f"{MANIFEST} was changed after gpushare install-scheduler: take out --config, the mount and the"
    f" volume by hand, or put {BACKUP} back"
)


class SchedulerFiles(msgspec.Struct, frozen=True):
    """The files as they are; ``None`` where there is none.

    Attributes:
        manifest: text of the static pod.
        original: text of the manifest before gpushare was installed.
        config: text of the file that the original's ``--config`` names.
        policy: text of the file that the original's ``--policy-config-file`` names.
        installed: text of the configuration of gpushare that the manifest uses.
    """

    manifest: str
    original: str | None = None
    config: str | None = None
    policy: str | None = None
    installed: str | None = None

    @property
    def base(self) -> str:
        """The manifest without the changes of gpushare.

        Raises:
            ControlPlaneError: the backup is missing, or the manifest was edited since.
        """
        ours = manifest.read(self.manifest).ours
        if not ours:
            return self.manifest
        if self.original is None:
            raise ControlPlaneError(f"{BACKUP} is missing, so the previous manifest is unknown")
        if manifest.configured(self.original, ours, without=[manifest.POLICY]) != self.manifest:
            raise ControlPlaneError(_CHANGED)
        return self.original


class FileChange(msgspec.Struct, frozen=True):
    """One file: its text before and after; ``None`` where there is none."""

    path: str
    before: str | None
    after: str | None


class ChangePlan(msgspec.Struct, frozen=True):
    """Changes in the order in which they are to be made, the manifest's last.

    Attributes:
        changes: empty where all is in place.
        config: path that ``--config`` has afterwards; empty where gpushare did not write it.
    """

    changes: tuple[FileChange, ...]
    config: str

    def diff(self) -> str:
        """The changes as a diff, without private keys."""
        return "".join(line for change in self.changes for line in _diff(change))


def install(found: SchedulerFiles, offer: SchedulerOffer) -> ChangePlan:
    """Have the scheduler call the extender that is offered.

    Raises:
        ControlPlaneError: that cannot be done here; the message has the reason.
    """
    base = found.base
    pod = manifest.read(base)
    if manifest.CONFIG in pod.flags and found.config is None:
        raise ControlPlaneError(
            f"--config names {pod.flags[manifest.CONFIG]}, which does not exist"
        )
    if manifest.POLICY in pod.flags:
        configuration.check_policy(found.policy or "")
    text = configuration.render(found.config, pod.flags, pod.image, offer)
    path = f"{manifest.FOLDER}/scheduler-{hashlib.sha256(text.encode()).hexdigest()[:12]}.yaml"
    wanted = manifest.configured(base, path, without=[manifest.POLICY])
    present = found.installed if manifest.read(found.manifest).ours == path else None
    changes = (
        FileChange(path, present, text),
        FileChange(BACKUP, found.original, base),
        FileChange(MANIFEST, found.manifest, wanted),
    )
    return ChangePlan(tuple(each for each in changes if each.before != each.after), path)


def uninstall(found: SchedulerFiles) -> ChangePlan:
    """Have the manifest as it was, byte for byte.

    Raises:
        ControlPlaneError: the original manifest is unknown.
    """
    base = found.base
    if base == found.manifest:
        return ChangePlan((), "")
    return ChangePlan((FileChange(MANIFEST, found.manifest, base),), "")


def _diff(change: FileChange) -> Iterator[str]:
    before, after = ((text or "").splitlines() for text in (change.before, change.after))
    for line in difflib.unified_diff(before, after, change.path, change.path, lineterm="", n=2):
        head, key, _ = line.partition("keyData: ")
        yield f"{head}{key}(a private key)\n" if key else f"{line}\n"
