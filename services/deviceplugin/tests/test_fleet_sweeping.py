"""What pods left in the shared memory of MPS goes once no pod uses it."""

import asyncio
import os
import threading
from pathlib import Path
from typing import Any

import pytest
from servicercalls import CONTEXT, allocation, ids, node, servicer

from gpucore.node.isolation.mps_grant import MpsPlace
from gpudeviceplugin.isolation.mps import fleet as module
from gpudeviceplugin.isolation.mps.fleet import Fleet
from gpudeviceplugin.isolation.mps.folders import sweep

SECONDS = 60.0
DEPTH = 1_200
"""More than the interpreter's limit of recursion."""


def fleet_of(root: Path, pipe: str = "") -> Fleet:
    """A fleet whose directories are below ``root``."""
    return Fleet(MpsPlace(str(root), pipe=pipe), control="mps", multi_user=False)


async def swept(fleet: Fleet) -> None:
    """Report that no pod uses the memory, and wait until the sweep has ended."""
    fleet.unused()
    others = asyncio.all_tasks() - {asyncio.current_task()}
    if others:
        await asyncio.wait(others, timeout=SECONDS)


def deep(folder: Path) -> None:
    """A tenant's tree; no path of the system is long enough for it."""
    folder.mkdir(parents=True)
    place = os.open(folder, os.O_DIRECTORY)
    for _ in range(DEPTH):
        os.mkdir("d", dir_fd=place)
        inner = os.open("d", os.O_DIRECTORY, dir_fd=place)
        os.close(place)
        place = inner
    os.close(place)


def names(folder: Path) -> list[str]:
    """Of what is in a directory."""
    return os.listdir(folder)  # noqa: PTH208


class HeldSweep:
    """A sweep that goes on until it is stopped; it never removes anything."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.begun = threading.Event()
        self.ended = False
        monkeypatch.setattr(module, "sweep", self._sweep)

    def _sweep(self, _shm: Path, stopped: Any) -> None:
        self.begun.set()
        self.ended = stopped.__self__.wait(SECONDS)  # the event whose state it returns


@pytest.mark.parametrize("pipe", ["", "/run/operator/pipe"])
async def test_memory_of_the_operators_daemon_is_left_alone(tmp_path: Path, pipe: str) -> None:
    """Ours is swept; that of a daemon that the operator runs is the operator's."""
    left = Path(MpsPlace(str(tmp_path), pipe=pipe).shm) / "left"
    left.parent.mkdir(parents=True, exist_ok=True)
    left.touch()
    await swept(fleet_of(tmp_path, pipe))
    assert left.exists() is bool(pipe)


async def test_without_shared_memory_there_is_nothing_to_sweep(tmp_path: Path) -> None:
    """No daemon was started yet."""
    await swept(fleet_of(tmp_path))
    assert names(tmp_path) == []


async def test_a_deep_tree_of_a_tenant_is_removed(tmp_path: Path) -> None:
    """Directories in directories, deeper than a function may call itself, end no plugin."""
    shm = tmp_path / "shm"
    deep(shm / "tree")
    (shm / "cuda.shm.0.1f4.1").touch()
    await swept(fleet_of(tmp_path))
    assert names(shm) == ["cuda.shm.0.1f4.1"]


async def test_a_sweep_that_fails_ends_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the reason, the plugin goes on, and the next sweep is made."""
    (tmp_path / "shm").mkdir()
    (tmp_path / "shm" / "left").touch()
    fleet = fleet_of(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(module, "sweep", lambda *_: 1 // 0)
        await swept(fleet)
    assert (tmp_path / "shm" / "left").exists()
    await swept(fleet)
    assert not (tmp_path / "shm" / "left").exists()


async def test_other_work_goes_on_while_the_memory_is_swept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sweep runs in a thread, one at a time."""
    (tmp_path / "shm").mkdir()
    held, fleet = HeldSweep(monkeypatch), fleet_of(tmp_path)
    fleet.unused()
    await asyncio.to_thread(held.begun.wait, SECONDS)
    held.begun.clear()
    fleet.unused()
    assert not held.ended
    await fleet.stop_sweep()
    assert held.ended
    assert not held.begun.is_set()


async def test_a_grant_waits_until_the_sweep_has_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kubelet starts the containers after the answer: their files are never swept."""
    (tmp_path / "shm").mkdir()
    held, fleet, state = HeldSweep(monkeypatch), fleet_of(tmp_path), node()
    state.stop_sweep = fleet.stop_sweep
    fleet.unused()
    await asyncio.to_thread(held.begun.wait, SECONDS)
    await servicer(state).Allocate(allocation(ids(state, 0, 2)), CONTEXT)
    assert held.ended


async def test_no_sweep_has_begun_when_the_last_one_is_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kubelet's account may come in that moment; the grant follows at once."""
    (tmp_path / "shm").mkdir()
    held, fleet = HeldSweep(monkeypatch), fleet_of(tmp_path)
    fleet.unused()
    await asyncio.to_thread(held.begun.wait, SECONDS)
    (sweeping,) = asyncio.all_tasks() - {asyncio.current_task()}
    sweeping.add_done_callback(lambda _: fleet.unused())
    await fleet.stop_sweep()
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_a_sweep_ends_with_the_plugin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its thread goes on after its task is cancelled, while the next plugin has pods start."""
    (tmp_path / "shm").mkdir()
    held, fleet = HeldSweep(monkeypatch), fleet_of(tmp_path)
    fleet.unused()
    await asyncio.to_thread(held.begun.wait, SECONDS)
    (sweeping,) = asyncio.all_tasks() - {asyncio.current_task()}
    sweeping.cancel()
    await asyncio.wait({sweeping})
    await asyncio.get_running_loop().shutdown_default_executor()
    assert held.ended


def test_a_sweep_removes_no_more_than_its_number_of_entries(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next one goes on, and a stopped one has left the rest alone."""
    monkeypatch.setattr("gpudeviceplugin.isolation.mps.folders.SWEEP_ENTRIES", 4)
    for number in range(10):
        (tmp_path / str(number)).touch()
    sweep(tmp_path, lambda: True)
    assert len(list(tmp_path.iterdir())) == 9
    for left in (5, 1, 0):
        sweep(tmp_path, lambda: False)
        assert len(list(tmp_path.iterdir())) == left
