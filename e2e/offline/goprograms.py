"""Programs compiled from Go modules: each folder of `modules/` pins one project and its sums.

Sources and compiled packages lie in the cache folder `go`, so that a
change of one project compiles that one again. Programs are static (no cgo).
"""

import os
import re
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from host import cachedir
from host.commands import run_command
from host.errors import SetupError
from host.fetching import with_retries
from host.progress import say, step
from offline import gotoolchain

MODULES = Path(__file__).parent / "modules"
TOOLS = ("tool",)
"""All programs that a module's `tool` lines name."""
_COMPILE_SECONDS = 3600.0
_FETCH_SECONDS = 600.0
_LIST_SECONDS = 60.0


def pinned(module: str, project: str) -> str:
    """The version, without its `v`, that `modules/<module>/go.mod` requires of a project."""
    text = (MODULES / module / "go.mod").read_text(encoding="utf-8")
    line = rf"^(?:require|\t)\s*{re.escape(project)} v(\S+)"
    match = re.search(line, text, re.MULTILINE)
    if match is None:
        raise SetupError(f"{MODULES / module / 'go.mod'} does not require {project}")
    return match[1]


def inputs(module: str) -> list[Path]:
    """The files that decide what is compiled, by name."""
    return sorted(path for path in (MODULES / module).iterdir() if path.is_file())


def ensure(module: str) -> Path:
    """The folder of the programs of `modules/<module>`, compiled if needed.

    Raises:
        SetupError: the module cannot be had, or does not compile here.
    """

    def fill(folder: Path) -> None:
        with step(f"compile {module} (minutes)"):
            compile_module(MODULES / module, into=folder)

    key = cachedir.content_key([gotoolchain.VERSION], inputs(module))
    return cachedir.entry(module, key, fill)


def compile_module(
    folder: Path, *, into: Path, packages: Sequence[str] = TOOLS, stamps: Sequence[str] = ()
) -> None:
    """Compile programs of the Go module in `folder` and put them into the folder `into`.

    Args:
        folder: with go.mod and go.sum; it is not written to.
        into: gets one file for each program.
        packages: what to compile, as `go build` takes it.
        stamps: `package.name=value` for variables that the linker sets.
    """
    flags = " ".join(["-s", "-w", *(f"-X {stamp}" for stamp in stamps)])
    options = ["-mod=readonly", "-trimpath", "-buildvcs=false", "-ldflags", flags, "-o", f"{into}/"]
    go(["build", *options, *packages], cwd=folder, timeout_s=_COMPILE_SECONDS)


def source(folder: Path, project: str) -> Path:
    """The folder of a project's sources, fetched if needed; `folder` holds the go.mod of it."""
    go(["mod", "download", project], cwd=folder, timeout_s=_FETCH_SECONDS)
    found = go(["list", "-m", "-f", "{{.Dir}}", project], cwd=folder, timeout_s=_LIST_SECONDS)
    return Path(found.strip())


def go_mod(project: str, version: str) -> str:
    """The go.mod of a version of a project, fetched if needed."""
    with tempfile.TemporaryDirectory(dir=cachedir.root(), prefix="context-") as name:
        words = ["list", "-m", "-f", "{{.GoMod}}", f"{project}@v{version}"]
        found = go(words, cwd=Path(name), timeout_s=_LIST_SECONDS)
    return Path(found.strip()).read_text(encoding="utf-8")


@cache
def obtainable(module: str) -> bool:
    """True when a module (`path@version`) and a Go to compile it are here or can be fetched.

    The reason is shown where they cannot.
    """
    try:
        with tempfile.TemporaryDirectory(dir=cachedir.root(), prefix="context-") as name:
            go(["mod", "download", module], cwd=Path(name), timeout_s=_FETCH_SECONDS)
    except SetupError as error:
        say(f"{module} cannot be had: {str(error).strip().splitlines()[-1].strip()}")
        return False
    return True


def go(words: Sequence[str | Path], *, cwd: Path, timeout_s: float) -> str:
    """Standard output of a go command that uses the cache folder's sources and packages."""
    folder = cachedir.root() / cachedir.GO
    folder.mkdir(exist_ok=True)
    os.utime(folder)
    env = {
        "GOMODCACHE": str(folder / "mod"),
        "GOCACHE": str(folder / "build"),
        # Writable, so that the cache can be pruned like any folder.
        "GOFLAGS": "-modcacherw",
        "GOTOOLCHAIN": gotoolchain.choice(),
        "GOWORK": "off",
        "GO111MODULE": "on",
        "CGO_ENABLED": "0",
    }
    command = [gotoolchain.ensure(), *words]
    return with_retries(lambda: run_command(command, timeout_s=timeout_s, cwd=cwd, env=env))
