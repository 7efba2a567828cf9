"""Which images are let go: old ones of ours, and never one that is in use."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from host import docker
from host.testing.fakeprograms import FakePrograms
from images import old

NOW = datetime(2026, 11, 21, tzinfo=UTC)
OLD, FRESH = NOW - old.KEPT - timedelta(seconds=1), NOW - old.KEPT
UNKNOWN = datetime.min.replace(tzinfo=UTC)
ENGINE = """
used='"2020-01-01T00:00:00.123456789Z"'
case "$1 $2" in
  "image ls") for tag in held free now '<none>'; do echo "gpushare/extender:$tag"; done ;;
  "image inspect") for name in held free now; do echo "$used"; done ;;
  "image rm") [ "$3" != gpushare/extender:held ] ;;
esac
"""


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakePrograms:
    """An engine with images of one repository, all used in 2020; a container holds one of them."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    programs = FakePrograms(folder)
    programs.add("docker", ENGINE)
    return programs


def test_only_what_was_not_used_for_long_goes() -> None:
    """The last use decides, to the second; what is to be kept stays however old it is."""
    used = [("old", OLD), ("fresh", FRESH), ("current", OLD)]
    assert old.outdated(used, now=NOW, keep=["current"]) == ["old"]


def test_what_the_engine_does_not_know_the_use_of_stays() -> None:
    """An engine that keeps no such times loses nothing."""
    assert old.outdated([("other", UNKNOWN)], now=NOW, keep=()) == []


def test_an_image_that_a_container_holds_stops_nothing(engine: FakePrograms) -> None:
    """The engine refuses to give it up, and the others go all the same; nameless stages too."""
    old.forget(["gpushare/extender"], keep=["gpushare/extender:now"])
    removed = [call.split()[-1] for call in engine.calls() if " image rm " in call]
    assert removed == ["gpushare/extender:held", "gpushare/extender:free"]
    (stages,) = [call for call in engine.calls() if " image prune " in call]
    assert f"--filter label={old.STAGE} --filter until=336h" in stages


def test_an_image_that_another_build_removes_meanwhile_stops_nothing(
    engine: FakePrograms,
) -> None:
    """Listed, and gone when the engine is queried about it: the build goes on."""
    gone = "echo 'No such image: gpushare/extender:free' >&2; exit 1"
    engine.add(
        "docker", ENGINE.replace('"image inspect") for', f'"image inspect") {gone} ;; _) for')
    )
    old.forget(["gpushare/extender"], keep=())
    assert not [call for call in engine.calls() if " image rm " in call]


def test_another_removal_of_stages_stops_nothing(
    engine: FakePrograms, capsys: pytest.CaptureFixture[str]
) -> None:
    """The engine does one at a time and refuses the second: the build goes on."""
    running = (
        '"image prune") echo "a prune operation is already running" >&2; exit 1 ;;\n  "image rm"'
    )
    engine.add("docker", ENGINE.replace('"image rm"', running))
    old.forget(["gpushare/extender"], keep=())
    assert "a prune operation is already running" in capsys.readouterr().err


def test_no_images_need_no_query(engine: FakePrograms) -> None:
    """An engine without images of ours is not sent a request that it would refuse."""
    assert docker.last_used([]) == []
    assert engine.calls() == []
