"""A control plane for tests of this service, and where an extender finds its kubeconfig."""

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest
from running import Running

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


@asynccontextmanager
async def scheduling(
    plane: ControlPlane, extender: Running, name: str, config: Mapping[str, Any]
) -> AsyncIterator[None]:
    """A kube-scheduler for pods that name it, which calls the extender.

    Args:
        config: whose profiles and percentage of nodes it has, such as that of the chart.
    """
    url = f"{extender.url}/gpushare-scheduler"
    process = await asyncio.to_thread(plane.scheduler, url, name=name, like=config)
    try:
        yield
    finally:
        await asyncio.to_thread(process.stop)
