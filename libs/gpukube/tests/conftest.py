"""Fixtures: a fake API server, and no settings of the environment."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from gpukube.testing.apiserver import FakeApiServer
from gpukube.testing.clock import FakeClock


@pytest.fixture(autouse=True, scope="module")
def no_proxy_from_outside() -> Iterator[None]:
    """No proxy of the environment."""
    with pytest.MonkeyPatch.context() as patch:
        for name in list(os.environ):
            if name.lower() in {"http_proxy", "https_proxy", "no_proxy", "all_proxy"}:
                patch.delenv(name)
        yield


@pytest.fixture
async def cluster() -> AsyncIterator[FakeApiServer]:
    """An empty API server."""
    async with FakeApiServer() as fake:
        yield fake


@pytest.fixture
async def clock() -> AsyncIterator[FakeClock]:
    """Waits of this test take no time."""
    fake = FakeClock(asyncio.get_running_loop())
    yield fake
    fake.restore()
