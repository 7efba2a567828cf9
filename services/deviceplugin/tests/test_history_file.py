"""The file of histories: replaced at once, private, and data of unknown origin when it is read."""

import os
from pathlib import Path

import pytest

from gpucore.sizing.history_documents import MOST_BYTES
from gpucore.sizing.usage_history import UsageHistory, WorkloadKey
from gpudeviceplugin.node.history_file import NAME, UNFINISHED, UNREADABLE, HistoryFile


def history() -> UsageHistory:
    """A history with a sample."""
    found = UsageHistory(WorkloadKey("team", "Deployment", "web", "main"))
    found.record(1.7e9, 2**30)
    return found


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A directory that does not exist yet."""
    return tmp_path / "state" / "usage"


def test_what_is_saved_is_loaded(home: Path) -> None:
    """The directory is created, and nobody else may read the file."""
    HistoryFile(home, "n1").save([history()])
    assert HistoryFile(home, "n1").load() == [history()]
    assert (home / NAME).stat().st_mode & 0o077 == 0
    assert [each.name for each in home.iterdir()] == [NAME]


def test_a_save_that_was_cut_off_does_not_end_saving(home: Path) -> None:
    """A power failure left the unfinished file, longer than the next."""
    HistoryFile(home, "n1").save([])
    (home / UNFINISHED).write_bytes(b"{" * 9999)
    HistoryFile(home, "n1").save([history()])
    assert HistoryFile(home, "n1").load() == [history()]
    assert not (home / UNFINISHED).exists()


def test_there_is_nothing_to_load_before_the_first_save(home: Path) -> None:
    """Which is no error."""
    assert HistoryFile(home, "n1").load() == []


@pytest.mark.parametrize(
    "content", [b"", b"{", b"\x00" * 100, b'{"items": 7}', b" " * (MOST_BYTES + 1)]
)
def test_a_damaged_file_is_renamed(home: Path, content: bytes) -> None:
    """And the next save is as the first."""
    kept = HistoryFile(home, "n1")
    kept.save([])
    (home / NAME).write_bytes(content)
    assert kept.load() == []
    assert (home / UNREADABLE).read_bytes() == content
    kept.save([history()])
    assert kept.load() == [history()]


def test_a_link_is_not_followed(home: Path, tmp_path: Path) -> None:
    """Neither to read nor to write."""
    kept = HistoryFile(home, "n1")
    kept.save([history()])
    target = tmp_path / "elsewhere"
    (home / NAME).rename(target)
    before = target.read_bytes()
    (home / NAME).symlink_to(target)
    assert kept.load() == []
    (home / UNFINISHED).symlink_to(target)
    kept.save([])
    assert target.read_bytes() == before
    assert not (home / NAME).is_symlink()


def test_a_directory_that_is_a_link_is_not_used(home: Path, tmp_path: Path) -> None:
    """What is written there would go elsewhere."""
    home.parent.mkdir()
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    home.symlink_to(elsewhere)
    kept = HistoryFile(home, "n1")
    kept.save([history()])
    assert kept.load() == []
    assert list(elsewhere.iterdir()) == []


def test_a_directory_that_others_may_write_is_not_used(home: Path) -> None:
    """They could replace the file."""
    kept = HistoryFile(home, "n1")
    kept.save([history()])
    home.chmod(0o777)
    assert kept.load() == []


def test_a_file_that_others_may_write_is_not_used(home: Path) -> None:
    """It is set aside as a damaged one is."""
    kept = HistoryFile(home, "n1")
    kept.save([history()])
    (home / NAME).chmod(0o666)
    assert kept.load() == []
    assert (home / UNREADABLE).exists()


def test_a_named_pipe_does_not_hold_up_the_start(home: Path) -> None:
    """Opening one waits for a writer."""
    kept = HistoryFile(home, "n1")
    kept.save([])
    (home / NAME).unlink()
    os.mkfifo(home / NAME, 0o600)
    assert kept.load() == []


def test_a_disk_that_cannot_be_written_is_no_failure(tmp_path: Path) -> None:
    """The plugin goes on without the file."""
    (tmp_path / "file").write_text("")
    kept = HistoryFile(tmp_path / "file" / "usage", "n1")
    kept.save([history()])
    assert kept.load() == []
