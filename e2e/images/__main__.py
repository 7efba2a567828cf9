"""`python -m images build`: build what is missing, print names and sizes, write what is in them.

Standard output has one line per image, `<name> <MB>`, the shared runtime included. Bills of
materials (CycloneDX) go to artifacts/sbom, progress to stderr. Exit status 1 with one sentence when
something is missing.

`python -m images verify` builds every image anew, without anything that the engine remembers of
earlier builds, and reports whether it is the same image, id and all; minutes. Exit status 1 when
one is not.
"""

import argparse
import sys
from pathlib import Path

from cluster import engine
from host import architecture
from host.architecture import Architecture
from host.commands import run_command
from host.errors import SetupError
from images import build, sbom

SBOM = Path(__file__).resolve().parents[2] / "artifacts" / "sbom"
_BYTES_PER_MB = 1_000_000


def main(arguments: list[str] | None = None) -> int:
    """Run the one command; the exit status."""
    options = _parser().parse_args(arguments)
    try:
        engine.ensure()
        target = architecture.named(options.architecture)
        well: bool = options.run(options.base, target)
    except SetupError as error:
        print(f"images: error: {error}", file=sys.stderr)
        return 1
    return 0 if well else 1


def _build(base: str | None, target: Architecture) -> bool:
    names = build.ensure(base, target).names()
    for name in names:
        print(f"{name:45} {_size(name) / _BYTES_PER_MB:6.0f} MB")
    for name in names:
        sbom.write(name, build.EPOCH, SBOM / target.name if target.foreign else SBOM)
    return True


def _verify(base: str | None, target: Architecture) -> bool:
    build.ensure(base, target)
    equal = [(name, again == first) for name, first, again in build.repeated(base, target)]
    for name, same in equal:
        print(f"{name:45} {'the same again' if same else 'ANOTHER IMAGE'}")
    return all(same for _, same in equal)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="images", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    jobs = (
        ("build", "build the images that are missing", _build),
        ("verify", "build all anew and compare", _verify),
    )
    for name, what, job in jobs:
        command = commands.add_parser(name, help=what)
        command.add_argument("--base", help="base image; default: python:3.12-slim or Debian's own")
        command.add_argument(
            "--architecture", default="", help="such as arm64; default: this machine's"
        )
        command.set_defaults(run=job)
    return parser


def _size(name: str) -> int:
    """Bytes of an image, its base included."""
    return int(
        run_command(["docker", "image", "inspect", "--format", "{{.Size}}", name], timeout_s=30)
    )


if __name__ == "__main__":
    sys.exit(main())
