"""A real control plane for tests of a service; where there is none, the test is skipped."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from environments.controlplane import ControlPlane
from host.errors import SetupError


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
        if os.environ.get("CI", "").lower() in {"1", "true"}:
            raise
        pytest.skip(f"no control plane: {reason}")
    try:
        one.start()
        yield one
    finally:
        one.stop()
