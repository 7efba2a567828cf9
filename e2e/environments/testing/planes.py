"""A real control plane for tests of a service; where there is none, the test is skipped."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from environments.controlplane import ControlPlane
from host.errors import SetupError
from host.testing.lacking import lacking


@contextmanager
def control_plane(version: str | None = None, **options: Any) -> Iterator[ControlPlane]:
    """Start etcd and an API server; their absence is a failure only with CI=true.

    Args:
        version: of Kubernetes; the chosen one by default.
        options: of the control plane.
    """
    try:
        one = ControlPlane(version, **options)
    except SetupError as reason:
        lacking("no control plane", reason)
    try:
        one.start()
        yield one
    finally:
        one.stop()
