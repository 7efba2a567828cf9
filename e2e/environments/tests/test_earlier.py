"""The commit from which one upgrades: the release before, or none."""

from collections.abc import Callable
from pathlib import Path

import pytest

from environments import earlier
from host.commands import run_command
from host.errors import SetupError

Git = Callable[..., str]


@pytest.fixture
def git(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Git:
    """Git in a repository of two commits."""
    folder = tmp_path / "repository"
    folder.mkdir()
    monkeypatch.setattr(earlier, "ROOT", folder)

    def run(*words: str) -> str:
        me = ("-c", "user.name=me", "-c", "user.email=me@example.org")
        return run_command(["git", *me, *words], cwd=folder, timeout_s=60)

    run("init", "--quiet")
    for message in ("first", "second"):
        run("commit", "--quiet", "--allow-empty", "--no-gpg-sign", "--message", message)
    return run


def test_the_release_before_is_the_newest_tag_of_an_earlier_commit(git: Git) -> None:
    """The tag of this very commit is the release that one upgrades to."""
    git("tag", "v0.1.0", "HEAD^")
    git("tag", "v0.2.0", "HEAD")
    assert earlier.newest_release() == "v0.1.0"


def test_before_the_first_release_there_is_none(git: Git) -> None:
    """A commit has to be named then."""
    git("tag", "v0.1.0", "HEAD")
    assert earlier.newest_release() == ""


@pytest.mark.usefixtures("git")
def test_a_commit_that_is_not_there_is_reported(tmp_path: Path) -> None:
    """With the words of git, before anything is built."""
    with pytest.raises(SetupError, match="nosuch"):
        earlier.build("nosuch", tmp_path)
