"""Prepared claims on disk: a checkpoint and a CDI file for each, and nothing in memory.

``prepare`` writes the CDI file first and the checkpoint second, ``unprepare`` removes them in the
opposite order. So a claim with a checkpoint has its CDI file wherever the process stops, and a CDI
file without a checkpoint is an orphan that no answer to kubelet has named.

Nothing waits for the disk. A power failure can empty a checkpoint that was just written; the node
then starts anew, and kubelet prepares every claim of its pods again before their containers start.

During a rolling update two plugins work on the same directories: every step runs under a file lock
and reads what is on disk.
"""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import structlog

from gpucore.node.claims.prepare import CLAIM_KIND
from gpucore.node.claims.prepared import (
    CheckpointError,
    PreparedClaim,
    decode_checkpoint,
    encode_checkpoint,
)
from gpucore.wire.claim.prepared import valid_uid

log = structlog.get_logger()

LOCK: Final = "claims.lock"
DIRECTORY: Final = "claims"
_PREFIX: Final = CLAIM_KIND.replace("/", "-") + "_"
_UNFINISHED: Final = ".unfinished"
_UNREADABLE: Final = ".unreadable"
_PRIVATE: Final = 0o600


class ClaimFiles:
    """The files of all prepared claims of a node. All calls block; every call is atomic.

    Args:
        home: directory of the driver on the node's disk, which survives a reboot.
        cdi: the container runtime's CDI directory, which a reboot empties.
    """

    def __init__(self, home: Path, cdi: Path) -> None:
        self._home = home
        self._checkpoints = home / DIRECTORY
        self._cdi = cdi

    def start(self) -> None:
        """Write missing CDI files of prepared claims, and remove those of no claim.

        Raises:
            OSError: the directories cannot be used.
        """
        self._checkpoints.mkdir(parents=True, exist_ok=True)
        self._cdi.mkdir(parents=True, exist_ok=True)
        with self._lock():
            for path in self._unfinished():
                path.unlink(missing_ok=True)
            self._take_back()
            kept = {path.stem for path in self._checkpoints.glob(f"*{_UNREADABLE}")}
            for path in sorted(self._checkpoints.glob("*.json")):
                if not self._restore(path):
                    kept.add(path.stem)
            self._remove_orphans(kept)

    def read(self, uid: str) -> PreparedClaim | None:
        """The prepared claim of a UID; ``None`` where there is none, or its checkpoint is damaged.

        Raises:
            OSError: the checkpoint exists and cannot be read.
        """
        if not valid_uid(uid):
            return None
        try:
            return decode_checkpoint(self._checkpoint(uid).read_bytes(), uid)
        except FileNotFoundError:
            return None
        except CheckpointError as error:
            log.warning("the checkpoint of a claim is damaged", claim=uid, why=str(error))
            return None

    def prepare(self, claim: PreparedClaim) -> PreparedClaim:
        """Have the files of a claim; what is prepared already stays as it is.

        Containers of the claim may run, so only another allocation replaces it.

        Raises:
            OSError: a file cannot be written; then neither is left.
        """
        with self._lock():
            known = self.read(claim.uid)
            if known is not None and known.allocated == claim.allocated:
                self._write_cdi(known)
                return known
            try:
                self._write_cdi(claim)
                _write(self._checkpoint(claim.uid), encode_checkpoint(claim))
            except OSError:
                self._remove(claim.uid)
                raise
            self._set_aside(claim.uid).unlink(missing_ok=True)
            return claim

    def again(self, claim: PreparedClaim) -> PreparedClaim | None:
        """Have the CDI file of a prepared claim; ``None`` where it is not prepared any more.

        Raises:
            OSError: the file cannot be written.
        """
        with self._lock():
            known = self.read(claim.uid)
            if known is not None:
                self._write_cdi(known)
            return known

    def unprepare(self, uid: str) -> None:
        """Remove every file of a claim; an unknown claim has none.

        Raises:
            OSError: a file cannot be removed.
        """
        if not valid_uid(uid):
            return
        with self._lock():
            self._remove(uid)

    def prepared(self) -> list[PreparedClaim]:
        """All prepared claims, in the order in which they were prepared."""
        found = []
        for path in self._checkpoints.glob("*.json"):
            with suppress(FileNotFoundError):  # it is being unprepared
                found.append((path.stat().st_mtime_ns, path.stem))
        return [claim for _, uid in sorted(found) if (claim := self.read(uid)) is not None]

    def uids(self) -> set[str]:
        """UIDs of the claims that have a checkpoint, damaged ones included."""
        return {
            path.stem
            for end in (".json", _UNREADABLE)
            for path in self._checkpoints.glob(f"*{end}")
        }

    def _restore(self, path: Path) -> bool:
        """False where the checkpoint is damaged: it is set aside, and its CDI file stays.

        Containers of that claim may run and start again. kubelet prepares the claim anew, or
        unprepares it; both replace what is set aside.
        """
        try:
            claim = decode_checkpoint(path.read_bytes(), path.stem)
        except CheckpointError as error:
            log.warning("the checkpoint of a claim is damaged", path=str(path), why=str(error))
            path.replace(self._set_aside(path.stem))
            return False
        self._write_cdi(claim)
        return True

    def _take_back(self) -> None:
        """Use what an earlier version of the plugin set aside, but for claims prepared since."""
        for path in self._checkpoints.glob(f"*{_UNREADABLE}"):
            with suppress(CheckpointError):
                decode_checkpoint(path.read_bytes(), path.stem)
                if not self._checkpoint(path.stem).exists():
                    path.replace(self._checkpoint(path.stem))

    def _unfinished(self) -> list[Path]:
        """Unfinished files of this plugin; other programs write to the CDI directory too."""
        ours = list(self._cdi.glob(f"{_PREFIX}*{_UNFINISHED}"))
        return [*ours, *self._checkpoints.glob(f"*{_UNFINISHED}")]

    def _remove_orphans(self, kept: set[str]) -> None:
        claims = kept | {path.stem for path in self._checkpoints.glob("*.json")}
        for path in self._cdi.glob(f"{_PREFIX}*.json"):
            if path.stem.removeprefix(_PREFIX) not in claims:
                log.info("removing the CDI file of no prepared claim", path=str(path))
                path.unlink(missing_ok=True)

    def _write_cdi(self, claim: PreparedClaim) -> None:
        path = self._cdi_file(claim.uid)
        content = claim.spec.encode()
        with suppress(FileNotFoundError):
            if path.read_bytes() == content:
                return
        _write(path, content)

    def _remove(self, uid: str) -> None:
        self._checkpoint(uid).unlink(missing_ok=True)
        self._set_aside(uid).unlink(missing_ok=True)
        self._cdi_file(uid).unlink(missing_ok=True)

    def _checkpoint(self, uid: str) -> Path:
        return self._checkpoints / f"{uid}.json"

    def _set_aside(self, uid: str) -> Path:
        return self._checkpoint(uid).with_suffix(_UNREADABLE)

    def _cdi_file(self, uid: str) -> Path:
        return self._cdi / f"{_PREFIX}{uid}.json"

    @contextmanager
    def _lock(self) -> Iterator[None]:
        """Closing the file releases the lock, also where the process is killed."""
        descriptor = os.open(self._home / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, _PRIVATE)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)


def _write(path: Path, content: bytes) -> None:
    """Replace a file at once."""
    unfinished = path.with_suffix(_UNFINISHED)
    try:
        with unfinished.open("wb") as file:
            file.write(content)
        unfinished.replace(path)
    except OSError:
        unfinished.unlink(missing_ok=True)
        raise
