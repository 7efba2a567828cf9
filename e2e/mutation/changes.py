"""Which modules of a package to mutate: those named, all, or those that differ from a revision."""

import subprocess
from collections.abc import Sequence
from pathlib import PurePosixPath

from mutation.workspace import ROOT, Package

_GENERATED = "_pb2"


class UnknownModuleError(ValueError):
    """A module that the package does not have."""


def select(package: Package, names: Sequence[str], *, base: str) -> list[str]:
    """Paths of modules below the package, without ``.py``, sorted.

    Raises:
        UnknownModuleError: a name is no module of the package.
    """
    known = _known(package)
    if list(names) == ["all"]:
        return known
    if not names:
        return [name for name in known if name in _changed(package, base)]
    found = [name for name in known if name in names or PurePosixPath(name).name in names]
    missing = [name for name in names if not any(one.endswith(name) for one in found)]
    if missing:
        raise UnknownModuleError(f"{package.name} has no module {', '.join(missing)}")
    return found


def _known(package: Package) -> list[str]:
    source = ROOT / package.folder / "src" / package.name
    files = sorted(source.rglob("*.py"))
    names = [file.relative_to(source).with_suffix("").as_posix() for file in files]
    return [name for name in names if _GENERATED not in name]


def _changed(package: Package, base: str) -> set[str]:
    source = f"{package.folder}/src/{package.name}"
    command = ["git", "diff", "--name-only", "--merge-base", base, "--", source]
    lines = subprocess.run(
        command, cwd=ROOT, check=True, capture_output=True, text=True, timeout=60
    ).stdout.splitlines()
    return {line.removeprefix(f"{source}/").removesuffix(".py") for line in lines}
