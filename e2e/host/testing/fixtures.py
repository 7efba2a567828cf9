"""Fixtures: fake programs on PATH and a cache folder of the test's own.

No test here reaches an engine, a package archive or a cluster.
"""

from pathlib import Path

import pytest

from host.testing.fakeprograms import FakePrograms


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakePrograms:
    """An empty PATH that the test fills."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.delenv("DOCKER_HOST", raising=False)
    return FakePrograms(folder)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The cache folder, empty and the test's own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "gpushare"


@pytest.fixture
def no_root(monkeypatch: pytest.MonkeyPatch) -> None:
    """This process looks like one of an ordinary user."""
    monkeypatch.setattr("os.geteuid", lambda: 1000)
