"""Hold the machine to the checks before a cluster is made: raise what is too low, or stop."""

from collections.abc import Sequence

from host.errors import SetupError
from host.privilege import as_root, can_be_root
from host.progress import say
from preflight import readings
from preflight.checks import Outcome, Row, rows

NODES_OF_A_CLUSTER = 3


def require(*, nodes: int = NODES_OF_A_CLUSTER) -> None:
    """Return once the machine has what ``nodes`` more nodes need.

    As root or with sudo, kernel parameters that are too low are raised until the next boot.

    Raises:
        SetupError: something is missing; names each, with the command to type.
    """
    found = rows(readings.read(), nodes=nodes)
    left = [row for row in found if row.outcome is Outcome.FAIL]
    left += raise_parameters([row for row in found if row.outcome is Outcome.RAISE])
    if left:
        raise SetupError("\n  ".join([_HEAD.format(nodes=nodes), *map(_missing, left)]))


_HEAD = "this machine lacks what {nodes} more nodes of a test cluster need:"


def raise_parameters(low: Sequence[Row]) -> list[Row]:
    """Raise kernel parameters where that is possible; those that stay too low."""
    return [row for row in low if not _raise(row)]


def _raise(row: Row) -> bool:
    if row.parameter is None or not can_be_root():
        return False
    name, value = row.parameter
    try:
        as_root(["sysctl", "-w", f"{name}={value}"], timeout_s=20)
    except SetupError as error:
        say(f"{name} cannot be raised here: {error}")
        return False
    say(f"raised {name} from {row.has} to {value:,}, until the next boot: nodes need {row.needs}")
    return True


def _missing(row: Row) -> str:
    return f"{row.check}: {row.has}, needed {row.needs}; type: {row.command}"
