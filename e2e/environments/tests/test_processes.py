"""Programs that a test starts are ended by it, and started again where they may end."""

from pathlib import Path

import pytest

from environments.processes import ChildProcess
from host.waiting import until


def started(folder: Path) -> int:
    """How often the program was started."""
    lines = folder / "lines"
    return len(lines.read_text().splitlines()) if lines.exists() else 0


@pytest.mark.slow
def test_a_program_that_has_ended_is_started_again(tmp_path: Path) -> None:
    """One that runs is left alone."""
    script = f"echo once >> {tmp_path}/lines; test -e {tmp_path}/stay && exec sleep 600"
    child = ChildProcess("forward", ["sh", "-c", script], folder=tmp_path)
    until("it has ended", lambda: not child.alive(), seconds=60)
    (tmp_path / "stay").touch()
    try:
        child.revive()
        until("it runs again", lambda: started(tmp_path) == 2, seconds=60)
        child.revive()
        assert child.alive()
        assert started(tmp_path) == 2
    finally:
        child.kill()


def test_an_early_end_is_an_error_with_the_log(tmp_path: Path) -> None:
    """What the program wrote last is in the message."""
    child = ChildProcess("server", ["sh", "-c", "echo no such port; exit 3"], folder=tmp_path)
    until("it has ended", lambda: not child.alive(), seconds=60)
    with pytest.raises(AssertionError, match=r"server ended with 3:\nno such port"):
        child.demand_alive()
