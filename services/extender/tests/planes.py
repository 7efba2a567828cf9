"""A control plane for tests of this service, and where an extender finds its kubeconfig."""

from collections.abc import Iterator

import pytest

from environments.controlplane import ControlPlane
from environments.testing.planes import control_plane


class Source:
    """Where an extender finds the control plane."""

    def __init__(self, plane: ControlPlane) -> None:
        self._plane = plane

    def kubeconfig(self) -> str:
        """The control plane's own."""
        return self._plane.kubeconfig.read_text()


@pytest.fixture(scope="module")
def plane() -> Iterator[ControlPlane]:
    """A control plane whose nodes are objects."""
    with control_plane() as one:
        yield one
