"""A control plane that was stopped stays so."""

from pathlib import Path

import pytest

import offline
from environments.controlplane import ControlPlane
from host.errors import SetupError


def test_no_program_is_started_once_the_control_plane_was_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The thread that starts it goes on where the coroutine that waits for it is cancelled."""
    monkeypatch.setattr(offline, "ensure_programs", lambda version: tmp_path)
    plane = ControlPlane()
    running = plane.start_program("first", ["sleep", "600"])
    plane.stop()
    assert not running.alive()
    with pytest.raises(SetupError, match="second is not started"):
        plane.start_program("second", ["sleep", "600"])
    assert plane.processes == [running]
    assert not plane.folder.exists()
