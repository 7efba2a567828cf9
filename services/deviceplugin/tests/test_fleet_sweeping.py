"""What pods left in the shared memory of MPS goes once no pod uses it."""

from pathlib import Path

import pytest

from gpucore.node.isolation.mps_grant import MpsPlace
from gpudeviceplugin.isolation.mps.fleet import Fleet


@pytest.mark.parametrize("pipe", ["", "/run/operator/pipe"])
def test_memory_of_the_operators_daemon_is_left_alone(tmp_path: Path, pipe: str) -> None:
    """Ours is swept; that of a daemon that the operator runs is the operator's."""
    place = MpsPlace(str(tmp_path), pipe=pipe)
    left = Path(place.shm) / "left"
    left.parent.mkdir(parents=True, exist_ok=True)
    left.touch()
    Fleet(place, control="mps", multi_user=False).unused()
    assert left.exists() is bool(pipe)


def test_without_shared_memory_there_is_nothing_to_sweep(tmp_path: Path) -> None:
    """No daemon was started yet."""
    Fleet(MpsPlace(str(tmp_path)), control="mps", multi_user=False).unused()
    assert list(tmp_path.iterdir()) == []
