"""Changes of kubelet's directory are noticed by inotify."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from gpudeviceplugin.kubelet.directory_watch import changes

SECONDS = 60


async def notice(watched: AsyncIterator[None]) -> bool:
    """Wait for the next notice; False where the directory is gone."""
    async with asyncio.timeout(SECONDS):
        return await anext(watched, "gone") is None


async def watched(directory: Path) -> tuple[AsyncIterator[None], "asyncio.Task[bool]"]:
    """A watch that has begun, and its first notice."""
    found = changes(directory)
    first = asyncio.create_task(notice(found))
    await asyncio.sleep(0)
    return found, first


async def test_a_socket_that_comes_and_goes_gives_notices(tmp_path: Path) -> None:
    """One for what comes together, one for what comes later."""
    found, first = await watched(tmp_path)
    (tmp_path / "kubelet.sock").touch()
    assert await first
    second = asyncio.create_task(notice(found))
    (tmp_path / "kubelet.sock").unlink()
    assert await second
    third = asyncio.create_task(notice(found))
    (tmp_path / "other").touch()
    (tmp_path / "other").rename(tmp_path / "kubelet.sock")
    assert await third


async def test_a_watch_ends_with_its_directory(tmp_path: Path) -> None:
    """After a last notice, so that the owner looks and watches the next one."""
    directory = tmp_path / "device-plugins"
    directory.mkdir()
    found, first = await watched(directory)
    directory.rmdir()
    assert await first
    assert not await notice(found)


@pytest.mark.parametrize("name", ["absent", "file"])
async def test_what_is_no_directory_is_an_error_with_its_path(tmp_path: Path, name: str) -> None:
    """The owner logs it and tries again."""
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match=name):
        await anext(changes(tmp_path / name))
