"""A disk that records what is done to it, and a process that is killed before one of the steps."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest


class Killed(BaseException):
    """The process is gone; no handler of errors runs in it."""


class Disk:
    """Steps that change files, in order.

    Attributes:
        steps: what was done, and to which file.
        before: is called before every step.
    """

    def __init__(self, fail_at: int | None, failure: type[BaseException]) -> None:
        self.steps: list[tuple[str, str]] = []
        self.before: Callable[[str, str], None] = lambda what, name: None
        self._fail_at = fail_at
        self._failure = failure

    def step(self, what: str, path: str) -> None:
        """The step is about to be done."""
        self.before(what, Path(path).name)
        if len(self.steps) == self._fail_at:
            self._fail_at = None
            raise self._failure
        self.steps.append((what, Path(path).name))


@contextmanager
def recorded(fail_at: int | None = None, failure: type[BaseException] = Killed) -> Iterator[Disk]:
    """Record all steps; with ``fail_at`` the step of that number fails instead."""
    disk = Disk(fail_at, failure)
    with pytest.MonkeyPatch.context() as patched:
        for name in ("replace", "unlink"):
            patched.setattr(Path, name, _recording(disk, name, getattr(Path, name)))
        patched.setattr(Path, "open", _opening(disk, Path.open))
        sync = os.fsync
        patched.setattr(os, "fsync", lambda number: (disk.step("fsync", ""), sync(number)))
        yield disk


def _recording(disk: Disk, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
    def call(path: Path, *args: Any, **more: Any) -> Any:
        disk.step(name, args[0] if args else path)
        return real(path, *args, **more)

    return call


def _opening(disk: Disk, real: Callable[..., Any]) -> Callable[..., Any]:
    """A file that is opened to be written is empty from then on."""

    def call(path: Path, mode: str = "r", *args: Any, **more: Any) -> Any:
        if "w" in mode:
            disk.step("write", path)
        return real(path, mode, *args, **more)

    return call
