"""The files of the command are installed as a person would, with the real krew and pipx."""

import functools
import http.server
import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from images import wheels
from images.base import Base
from images.wheels import fetch
from offline import krew as krewprograms
from release import commandfiles, commandwheel, krew, version
from release.__main__ import ROOT

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

VERSION = "0.2.0-rc.1"
KUBECTL = '#!/bin/sh\nplugin="$1"; shift\nexec "kubectl-$plugin" "$@"\n'
"""What kubectl does with the name of a plugin."""
SECONDS = 300


@pytest.fixture
def epoch(monkeypatch: pytest.MonkeyPatch) -> int:
    """The time of the commit, and the wheels that are really needed."""
    monkeypatch.setattr(wheels, "fetch", fetch)
    found = version.head(ROOT).epoch
    monkeypatch.setenv("SOURCE_DATE_EPOCH", str(found))
    return found


@pytest.fixture
def downloads(tmp_path: Path) -> Iterator[tuple[Path, str]]:
    """A folder, and the URL under which a web server has it."""
    folder = tmp_path / "downloads"
    folder.mkdir()

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            """Tests print enough."""

    handler = functools.partial(Quiet, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield folder, f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join(60)


def output(line: list[str | Path], environment: Mapping[str, str]) -> str:
    """What a command prints; it must succeed."""
    done = subprocess.run(
        line,
        env=dict(environment),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


def own_environment(home: Path, *folders: Path) -> dict[str, str]:
    """Variables of a user with these folders on the PATH, and with this Python."""
    path = [*folders, Path(sys.executable).resolve().parent, "/usr/bin", "/bin"]
    return {"HOME": str(home), "PATH": os.pathsep.join(map(str, path))}


def test_krew_validates_and_installs_the_plugin(
    downloads: tuple[Path, str], epoch: int, tmp_path: Path
) -> None:
    """Its own validation accepts the manifest and installs all platforms; the command runs."""
    folder, url = downloads
    commandfiles.write(ROOT, VERSION, epoch, folder, downloads=url)
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "kubectl").write_text(KUBECTL)
    (programs / "kubectl").chmod(0o755)
    compiled = krewprograms.ensure()
    (programs / "kubectl-krew").symlink_to(compiled / "krew")
    installed = tmp_path / "home" / ".krew" / "bin"
    environment = own_environment(tmp_path / "home", programs, installed)
    manifest = folder / f"{krew.PLUGIN}.yaml"
    printed = output([compiled / "validate-krew-manifest", f"-manifest={manifest}"], environment)
    assert "structural validation OK" in printed
    assert "all 2 spec.platforms installed fine" in printed
    output([programs / "kubectl", "krew", "install", f"--manifest={manifest}"], environment)
    ran = output([programs / "kubectl", krew.PLUGIN, "version"], environment)
    assert ran == f"gpushare {VERSION}\n"


def test_pipx_installs_the_wheel(epoch: int, tmp_path: Path) -> None:
    """With all its names, from the wheels of the requirement file alone."""
    del epoch
    wheel = commandwheel.write(ROOT, VERSION, tmp_path)
    here = Base(
        name="",
        id="",
        python=f"{sys.version_info.major}.{sys.version_info.minor}",
        glibc="2.28",
        machine=os.uname().machine,
    )
    fetched = fetch(tmp_path / "requirements.txt", here)
    environment = own_environment(tmp_path / "home", tmp_path / "bin") | {
        "PIPX_DEFAULT_BACKEND": "uv",
        "PIPX_HOME": str(tmp_path / "pipx"),
        "PIPX_BIN_DIR": str(tmp_path / "bin"),
    }
    options = f"--pip-args=--no-index --find-links={fetched}"
    printed = output([sys.executable, "-m", "pipx", "install", options, wheel], environment)
    assert "gpushare-cli" in printed
    assert output(["gpushare", "version"], environment) == f"gpushare {VERSION}\n"
    assert {path.name for path in (tmp_path / "bin").iterdir()} >= {
        "gpushare",
        "kubectl-inspect-gpu",
        "kubectl-inspect-gpushare",
    }
    shown = output(["kubectl-inspect-gpushare", "--help"], environment)
    assert "Usage: kubectl inspect gpushare" in shown
