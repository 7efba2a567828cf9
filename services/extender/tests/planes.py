"""A real control plane for tests of this service, and where its kubeconfig is."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from cluster.errors import ClusterError
from environments.controlplane import ControlPlane


class Source:
    """Where an extender finds the control plane."""

    def __init__(self, plane: ControlPlane) -> None:
        self._plane = plane

    def kubeconfig(self) -> str:
        """The control plane's own."""
        return self._plane.kubeconfig.read_text()


@contextmanager
def control_plane(version: str | None = None) -> Iterator[ControlPlane]:
    """Etcd and an API server, started; their absence is a failure only with CI=true.

    Args:
        version: of Kubernetes; the chosen one by default.
    """
    try:
        one = ControlPlane(version)
    except ClusterError as reason:
        if os.environ.get("CI", "").lower() in {"1", "true"}:
            raise
        pytest.skip(f"no control plane: {reason}")
    try:
        one.start()
        yield one
    finally:
        one.stop()


@pytest.fixture(scope="module")
def plane() -> Iterator[ControlPlane]:
    """A control plane whose nodes are objects."""
    with control_plane() as one:
        yield one
