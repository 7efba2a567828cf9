"""Mutation testing of one package: break a line and see whether a test fails.

    python -m mutation extender                       modules that differ from the main branch
    python -m mutation extender --modules bind binding
    python -m mutation deviceplugin --modules all --at-least 85

mutmut changes one expression at a time in a copy of the package and runs the tests that reach the
changed function. The score of a module is the share of its mutants that a test notices; a mutant
that makes the tests exceed their time counts as noticed. Exit status 1: a module scores below
``--at-least``.
"""

import argparse
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from mutation import changes, scores
from mutation.workspace import PACKAGES, Workspace


def main() -> int:
    """Run mutmut over the chosen modules and print the table of scores; the exit status."""
    options = _options()
    package = PACKAGES[options.package]
    modules = changes.select(package, options.modules, base=options.base)
    if not modules:
        print(f"No module of {options.package} differs from {options.base}; name some: --modules")
        return 0
    folder = Path(tempfile.mkdtemp(prefix="mutation-"))
    try:
        workspace = Workspace(folder, package)
        workspace.fill(modules, tests=options.tests, markers=options.markers)
        status = workspace.run_mutmut(jobs=options.jobs, timeout_s=options.timeout)
        found = scores.read(workspace.results(), package.name)
    finally:
        shutil.rmtree(folder)
    print(scores.table(found, survivors=options.survivors))
    if status or not found:
        print("mutmut ended early: see its output above", file=sys.stderr)
        return 2
    return int(any(score.percent < options.at_least for score in found))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m mutation",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("package", choices=sorted(PACKAGES))
    parser.add_argument(
        "--modules",
        nargs="+",
        metavar="NAME",
        default=[],
        help="modules to mutate, as paths below the package without .py, or 'all'",
    )
    parser.add_argument("--base", default="main", help="git revision that modules are compared to")
    parser.add_argument(
        "--tests", nargs="+", default=["tests"], metavar="PATH", help="tests to run, as paths"
    )
    parser.add_argument("--markers", default="not e2e and not gpu", help="pytest -m expression")
    parser.add_argument("--jobs", type=int, default=2, help="mutants tested at a time")
    parser.add_argument("--timeout", type=float, default=7200, help="seconds for the whole run")
    parser.add_argument("--at-least", type=float, default=0, metavar="PERCENT")
    parser.add_argument("--survivors", action="store_true", help="list the mutants not noticed")
    return parser.parse_args()


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (subprocess.SubprocessError, changes.UnknownModuleError) as error:
        sys.exit(f"mutation: {error}")
