"""Fixtures: a repository of the test's own, an engine that is a script, a registry on loopback."""

import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from images import wheels
from release.tests import smallrepository
from release.tests.fakeengine import SCRIPT
from release.tests.fakeregistry import FakeRegistry


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository whose files are committed."""
    root = tmp_path / "repository"
    root.mkdir()
    smallrepository.create(root)
    return root


@pytest.fixture(autouse=True)
def nothing_fetched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The wheels of a requirement file are not fetched: there are none."""
    none = tmp_path / "wheels"
    none.mkdir()
    monkeypatch.setattr(wheels, "fetch", lambda *_: none)


@pytest.fixture
def docker_calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file in which the fake engine writes each call as one line."""
    folder = tmp_path / "bin"
    folder.mkdir()
    program = folder / "docker"
    program.write_text(f"#!{sys.executable} -I\n{SCRIPT}")
    program.chmod(0o755)
    calls = tmp_path / "calls"
    calls.touch()
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    monkeypatch.setenv("FAKE_DOCKER_CALLS", str(calls))
    return calls


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeRegistry]:
    """A registry that listens until the test ends."""
    for name in ("http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY"):
        monkeypatch.delenv(name, raising=False)
    with FakeRegistry() as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()
