"""Show what nodes of test clusters need and what this machine has.

    python -m preflight [--nodes N]            the table; exit status 1 where something is missing
    python -m preflight --fix [--nodes N]      raise kernel parameters that are too low, as root

What `make demo`, `make e2e` and `make test` check by themselves before they make a cluster.
"""

import argparse
import sys

from host.errors import SetupError
from preflight import readings
from preflight.checks import Outcome, Row, rows
from preflight.require import NODES_OF_A_CLUSTER, require

_TITLES = Row("CHECK", "HAS", "NEEDS", Outcome.PASS)


def main(arguments: list[str] | None = None) -> int:
    """Exit status 0 where nothing is missing."""
    parser = argparse.ArgumentParser(
        prog="preflight", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--nodes",
        type=int,
        default=NODES_OF_A_CLUSTER,
        help="nodes that will be started (default: %(default)s, those of one cluster)",
    )
    parser.add_argument("--fix", action="store_true", help="raise what root can raise, no table")
    options = parser.parse_args(arguments)
    if options.fix:
        return _fix(options.nodes)
    found = rows(readings.read(), nodes=options.nodes)
    print(table(found))
    return int(any(row.outcome in {Outcome.FAIL, Outcome.RAISE} for row in found))


def _fix(nodes: int) -> int:
    try:
        require(nodes=nodes)
    except SetupError as error:
        print(f"preflight: {error}", file=sys.stderr)
        return 1
    return 0


def table(found: list[Row]) -> str:
    """The rows, aligned; under each that is not a pass what to type."""
    cells = [[row.check, row.has, row.needs] for row in (_TITLES, *found)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    marks = ["OUTCOME", *(row.outcome.value for row in found)]
    lines = []
    for row, mark, texts in zip((_TITLES, *found), marks, cells, strict=True):
        padded = (f"{text:{width}}" for text, width in zip(texts, widths, strict=True))
        lines.append("  ".join([*padded, mark]))
        if row.command:
            lines.append(f"  -> {row.command}")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
