"""Where built parts live between runs: outside the checkout, named by what they are made of.

An entry `<kind>-<content key>` is either complete or absent: it is filled under another name and
renamed into place, under a lock that other processes wait for. Each use dates it, by which it is
known what :func:`prune` may take.
"""

import ast
import fcntl
import hashlib
import os
import re
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_KEY_LENGTH = 12
KEPT_SECONDS = 14 * 24 * 3600
SUPERSEDED_SECONDS = 30 * 24 * 3600
"""After this time in which other versions of a program were used, a version is an old one."""
_ENTRY = re.compile(r"(?P<kind>.+)-[0-9a-f]{12,16}")
_VERSION = re.compile(r"-\d+\.\d+\.\d+$")
_UNFINISHED = ("context-", "preload-", "settled-")
"""Folders that are filled and thrown away again. A root file system is not among them: it may hold
mounts."""
_PARTIAL = ".partial"
GO = "go"
"""Sources and compiled packages of Go modules, which a build needs only to be quick."""


def root() -> Path:
    """The cache folder, `${XDG_CACHE_HOME:-~/.cache}/gpushare`, made when it is not there."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    folder = Path(base) / "gpushare"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def content_key(texts: Iterable[str], files: Iterable[Path] = ()) -> str:
    """Twelve hex digits that change when any text, file name or file content changes."""
    digest = hashlib.sha256()
    for text in texts:
        digest.update(f"text {len(text.encode())}\n{text}".encode())
    for file in sorted(files, key=lambda path: path.name):
        content = file.read_bytes()
        digest.update(f"file {file.name} {len(content)}\n".encode() + content)
    return digest.hexdigest()[:_KEY_LENGTH]


def code(module: Path) -> str:
    """What a Python module does, for a key: without imports, docstrings and comments.

    So moving a module, or describing it better, builds nothing anew.
    """
    tree = ast.parse(module.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list):
            body[:] = [each for each in body if not _without_effect(each)] or [ast.Pass()]
    return ast.unparse(tree)


def _without_effect(statement: ast.stmt) -> bool:
    if isinstance(statement, ast.Import | ast.ImportFrom):
        return True
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


def entry(kind: str, key: str, fill: Callable[[Path], None]) -> Path:
    """The complete cache folder `<kind>-<key>`; `fill(folder)` makes it when it is not there."""
    final = root() / f"{kind}-{key}"
    with locked(kind):
        if not final.is_dir():
            _fill(final, fill)
        os.utime(final)
    return final


def prune(*, now: float) -> list[str]:
    """Remove what was not used for :data:`KEPT_SECONDS`; the names of what is gone.

    The newest entry of a kind stays however old it is: making it again may take minutes. It goes
    only where the kind ends with a version, such as ``kubernetes-1.36.4``, and another version was
    used :data:`SUPERSEDED_SECONDS` later. What a process that was killed left of its work goes too.

    Args:
        now: in seconds since the epoch.
    """
    kinds: set[str] = set()
    programs: dict[str, float] = {}
    gone = []
    for folder, used in _by_last_use():
        if entry := _ENTRY.fullmatch(folder.name):
            kind = entry["kind"]
            last = programs.setdefault(_VERSION.sub("", kind), used)
            stays = kind not in kinds and used >= last - SUPERSEDED_SECONDS
            kinds.add(kind)
        else:
            stays = not _disposable(folder.name)
        if not stays and used < now - KEPT_SECONDS:
            shutil.rmtree(folder, ignore_errors=True)
            gone.append(folder.name)
    return gone


def _by_last_use() -> list[tuple[Path, float]]:
    """The folders of the cache and when each was used last, the newest first."""
    found = []
    for path in root().iterdir():
        with suppress(OSError):  # another process has thrown it away
            if path.is_dir():
                found.append((path, path.stat().st_mtime))
    return sorted(found, key=lambda each: each[1], reverse=True)


def _disposable(name: str) -> bool:
    """Whether a folder that is no entry may go: another one is made when it is needed."""
    return name == GO or name.startswith(_UNFINISHED) or name.endswith(_PARTIAL)


@contextmanager
def locked(name: str) -> Iterator[None]:
    """Hold the cache's lock of this name; another process that wants it waits for us."""
    with (root() / f".{name}.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _fill(final: Path, fill: Callable[[Path], None]) -> None:
    partial = final.with_name(f"{final.name}{_PARTIAL}")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir()
    fill(partial)
    partial.rename(final)
