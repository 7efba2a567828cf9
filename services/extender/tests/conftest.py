"""Fixtures: a fake API server, and the real service in this process in front of it."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "helm" / "tests"))
sys.path.insert(0, str(Path(__file__).parent))

from nominationbench import Bench
from running import Running

from gpukube.testing.apiserver import FakeApiServer
from gpukube.testing.clock import FakeClock


@pytest.fixture(autouse=True, scope="module")
def nobodys_environment() -> Iterator[None]:
    """No setting and no proxy of whoever runs the tests."""
    with pytest.MonkeyPatch.context() as patch:
        for name in list(os.environ):
            ours = name in {"PORT", "LOG_LEVEL"} or name.startswith("GPUSHARE_")
            if ours or name.lower() in {"http_proxy", "https_proxy", "no_proxy", "all_proxy"}:
                patch.delenv(name)
        yield


@pytest.fixture
async def cluster() -> AsyncIterator[FakeApiServer]:
    """An empty API server."""
    async with FakeApiServer() as fake:
        yield fake


@pytest.fixture
async def legacy(cluster: FakeApiServer, tmp_path: Path) -> AsyncIterator[Running]:
    """A ready extender that reads the ConfigMaps of unhealthy GPUs as well."""
    async with Running(cluster, tmp_path, unhealthy_configmaps=True) as running:
        await running.ready()
        yield running


@pytest.fixture
async def extender(cluster: FakeApiServer, tmp_path: Path) -> AsyncIterator[Running]:
    """A ready extender of that API server; what a test puts in later comes by watch."""
    async with Running(cluster, tmp_path) as running:
        await running.ready()
        yield running


@pytest.fixture
async def requeue_only(cluster: FakeApiServer, tmp_path: Path) -> AsyncIterator[Running]:
    """The same without nominations, where nothing else wakes a refused pod."""
    async with Running(cluster, tmp_path, nominate="off") as running:
        await running.ready()
        yield running


@pytest.fixture
async def clock() -> AsyncIterator[FakeClock]:
    """Waits of this test take no time."""
    fake = FakeClock(asyncio.get_running_loop())
    yield fake
    fake.restore()


@pytest.fixture
def made() -> Iterator[Callable[..., Bench]]:
    """Makes extenders that nominate, by their options, and closes them."""
    found: list[Bench] = []

    def make(**options: object) -> Bench:
        found.append(Bench(**options))
        return found[-1]

    yield make
    for each in found:
        each.replica.loop.close()


@pytest.fixture
def bench(made: Callable[..., Bench]) -> Bench:
    """Nodes of 16, 12 and 8 units; every pending pod is nominated."""
    return made()
