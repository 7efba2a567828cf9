"""A machine for as long as a test, a file of tests or a session uses it."""

from collections.abc import Iterator

import pytest

from environments.environment import UnavailableError
from host.testing.lacking import lacking
from machine.environment import MachineEnvironment


def running(
    request: pytest.FixtureRequest, world: MachineEnvironment
) -> Iterator[MachineEnvironment]:
    """The machine, switched on; with CI=true none is a failure, else a reasoned skip."""
    request.getfixturevalue("alone")
    try:
        world.start()
        yield world
    except UnavailableError as reason:
        lacking("no machine in QEMU", reason)
    finally:
        world.stop()
