"""What the plugin gives back after its start."""

import asyncio
import hashlib
import json
from contextlib import suppress
from pathlib import Path

import pytest

from gpudeviceplugin import memory
from gpudeviceplugin.memory import EVERY_SECONDS, give_back, keep_small, loaded_code
from gpukube.testing.clock import FakeClock


def mapped_kib() -> int:
    """Pages of files that this process maps."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("RssFile:"))


def test_code_that_was_given_back_is_mapped_again_when_it_runs() -> None:
    """The process maps less, and works as before."""
    before = mapped_kib()
    assert loaded_code()
    give_back()
    assert mapped_kib() < before
    assert json.loads('{"a": [1]}') == {"a": [1]}
    assert hashlib.sha256(b"").hexdigest().startswith("e3b0c44298fc1c14")


def test_code_is_that_of_files_alone() -> None:
    """The kernel's own code and code made at run time are not in the page cache."""
    maps = Path("/proc/self/maps").read_text().splitlines()
    for code in loaded_code():
        (line,) = (line for line in maps if line.startswith(f"{code.address:x}-"))
        assert line.split()[1] == "r-xp"
        assert line.split()[5].startswith("/")


def test_without_a_list_of_mappings_no_code_is_given_back(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """It is no reason not to start."""
    monkeypatch.setattr(memory, "MAPPINGS", tmp_path / "maps")
    assert loaded_code.__wrapped__() == ()


async def test_memory_is_given_back_after_the_start_and_every_hour(
    monkeypatch: pytest.MonkeyPatch, clock: FakeClock
) -> None:
    """Until the task is cancelled."""
    given: list[int] = []
    monkeypatch.setattr(memory, "give_back", lambda: given.append(1))
    started = asyncio.Event()
    task = asyncio.create_task(keep_small(started))
    await asyncio.sleep(EVERY_SECONDS)
    assert given == []
    started.set()
    await asyncio.sleep(EVERY_SECONDS / 2)
    assert given == [1]
    await asyncio.sleep(EVERY_SECONDS)
    assert given == [1, 1]
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
