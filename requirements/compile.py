"""Compiles the requirement files: names, versions and hashes, never an address.

One file a purpose: the environment of the repository (dev), the bootstrap (uv) and one for each
image, which takes no version that the tests did not see. A file that is here already keeps its
versions as long as they fit; `--upgrade` takes the newest. The package index is the one that uv is
set up with on this machine.
"""
# ruff: noqa: INP001 - a script beside the files it makes, no package

import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
LOCAL = (
    *("gpucore", "gpukube", "gpuprobe"),
    *("gpushare-extender", "gpushare-device-plugin", "gpushare-inspect"),
)
IMAGES = ("extender", "deviceplugin", "inspect")
TIMEOUT_S = 600

_OPTIONS = (
    "--quiet",
    "--universal",
    "--python-version=3.11",
    "--generate-hashes",
    "--no-emit-index-url",
    "--no-annotate",
    "--no-header",
    *(f"--no-emit-package={name}" for name in LOCAL),
)


def main(arguments: list[str]) -> int:
    """Compile every file, or say on stderr how to call this; the exit status."""
    if arguments not in ([], ["--upgrade"]):
        print("usage: compile.py [--upgrade]", file=sys.stderr)
        return 2
    _compile("requirements/uv.in", into="uv.txt", options=arguments)
    _compile("pyproject.toml", into="dev.txt", options=["--group=dev", *arguments])
    for image in IMAGES:
        member = f"services/{image}/pyproject.toml"
        _compile(member, into=f"{image}.txt", options=["--constraint=requirements/dev.txt"])
    return 0


def _compile(source: str, *, into: str, options: list[str]) -> None:
    uv = Path(sys.executable).with_name("uv")
    target = f"--output-file=requirements/{into}"
    command = [uv, "pip", "compile", source, target, *_OPTIONS, *options]
    subprocess.run(command, cwd=ROOT, check=True, timeout=TIMEOUT_S)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
