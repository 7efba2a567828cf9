"""`python -m emulated [--architecture arm64]`: unit tests under an emulator, counted.

Standard output is a table, one line a folder of tests; pytest's own output is in
build/emulated/<architecture>. Exit status 1 when a test failed or could not be run.
"""

import argparse
import sys
from pathlib import Path
from typing import Final

from cluster import engine
from emulated import inputs, run
from host import architecture
from host.errors import SetupError

FOLDERS: Final = ("libs/gpucore/tests", "libs/gpukube/tests", "services/deviceplugin/tests")


def main(arguments: list[str] | None = None) -> int:
    """Run the folders one after the other; the exit status."""
    options, more = _parser().parse_known_args(arguments)
    try:
        target = architecture.named(options.architecture)
        engine.ensure()
        counts = _run(target, options, more)
    except SetupError as error:
        print(f"emulated: error: {error}", file=sys.stderr)
        return 1
    return int(any(each.failed for each in counts))


def _run(
    target: architecture.Architecture, options: argparse.Namespace, more: list[str]
) -> list[run.Counts]:
    found = inputs.ensure(target)
    counts = []
    print(run.HEADER, flush=True)
    for folder in options.folder or FOLDERS:
        output = inputs.ROOT / "build" / "emulated" / target.name / Path(folder).parent.name
        counts.append(run.run(found, folder, output=output, mark=options.mark, more=more))
        print(counts[-1].line(), flush=True)
    return counts


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="emulated", description=__doc__, epilog="Other arguments go to pytest."
    )
    parser.add_argument("--architecture", default="arm64", help="default: arm64")
    parser.add_argument("--mark", default=run.MARK, help=f"default: {run.MARK!r}")
    parser.add_argument("--folder", action="append", help="default: core, kube, device plugin")
    return parser


if __name__ == "__main__":
    sys.exit(main())
