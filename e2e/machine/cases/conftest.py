"""A machine of its own for each case: a new disk, a new control plane, a new driver."""

import os
from collections.abc import Iterator

import pytest

from environments.environment import UnavailableError
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
        if os.environ.get("CI", "").lower() in {"1", "true"}:
            raise
        pytest.skip(f"no machine in QEMU: {reason}")
    finally:
        world.stop()
