"""A machine of its own for each case: a new disk, a new control plane, a new driver."""

from collections.abc import Iterator

import pytest

from machine.environment import MachineEnvironment
from machine.running import running


@pytest.fixture
def environment(request: pytest.FixtureRequest) -> Iterator[MachineEnvironment]:
    """The stack with one node in QEMU."""
    yield from running(request, MachineEnvironment())
