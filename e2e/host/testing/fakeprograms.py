"""Fake programs as real executables: what the code under test finds on PATH is a small script."""

from pathlib import Path


class FakePrograms:
    """A folder that is the whole PATH; each program in it is a shell script given by the test.

    Every call is written down with its arguments, in order.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._log = folder.parent / "calls"

    def add(self, name: str, script: str) -> None:
        """Put a program on PATH whose body is `script`, in which only shell built-ins exist."""
        program = self.folder / name
        program.write_text(f'#!/bin/sh\necho "{name} $*" >> "{self._log}"\n{script}\n')
        program.chmod(0o755)

    def calls(self) -> list[str]:
        """Every call so far as `name argument argument`."""
        return self._log.read_text().splitlines() if self._log.exists() else []
