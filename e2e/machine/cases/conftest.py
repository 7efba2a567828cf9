"""A machine of its own for each case: a new disk, a new control plane, a new driver."""

from collections.abc import Iterator

import pytest

from environments.environment import UnavailableError
from host.testing.lacking import lacking
from machine.environment import MachineEnvironment


@pytest.fixture
def environment(request: pytest.FixtureRequest) -> Iterator[MachineEnvironment]:
    """The stack with one node in QEMU; with CI=true none is a failure, else a reasoned skip."""
    request.getfixturevalue("alone")
    world = MachineEnvironment()
    try:
        world.start()
        yield world
    except UnavailableError as reason:
        lacking("no machine in QEMU", reason)
    finally:
        world.stop()
