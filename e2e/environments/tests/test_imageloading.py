"""Workers are fed while the cluster is made, as soon as all of them take images."""

from pathlib import Path
from threading import Event

import pytest

from environments import imageloading
from host.errors import SetupError
from host.waiting import until

SECONDS = 60
WORKERS = ("one", "two")


@pytest.fixture
def docker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A docker in whose nodes containerd answers once there is a file of the node's name."""
    program = tmp_path / "docker"
    program.write_text(f'#!/bin/sh\necho "$2" >> "{tmp_path}/probed"\n[ -e "{tmp_path}/$2" ]\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    return tmp_path


def test_workers_are_fed_before_the_cluster_is_made(docker: Path) -> None:
    """The creation ends only after the images are in, so they went in beside it."""
    fed = Event()

    def create() -> None:
        for worker in WORKERS:
            (docker / worker).touch()
        assert fed.wait(SECONDS)

    imageloading.while_created(create, fed.set, workers=WORKERS)


@pytest.mark.slow
def test_one_worker_that_takes_no_images_yet_is_waited_for(docker: Path) -> None:
    """Kind loads all of them in one command."""
    (docker / "one").touch()
    fed = Event()

    def create() -> None:
        until("the other is probed", lambda: "two" in probed(docker), seconds=SECONDS)
        assert not fed.is_set()
        (docker / "two").touch()
        assert fed.wait(SECONDS)

    imageloading.while_created(create, fed.set, workers=WORKERS)


def probed(folder: Path) -> str:
    """Workers whose containerd was probed so far."""
    notes = folder / "probed"
    return notes.read_text() if notes.exists() else ""


@pytest.mark.usefixtures("docker")
def test_a_creation_that_fails_is_reported_and_nobody_is_fed() -> None:
    """There are no workers then."""
    fed = Event()

    def create() -> None:
        raise SetupError("no room")

    with pytest.raises(SetupError, match="no room"):
        imageloading.while_created(create, fed.set, workers=WORKERS)
    assert not fed.is_set()


def test_images_that_do_not_go_in_are_an_error(docker: Path) -> None:
    """It is notified when the creation has ended."""
    for worker in WORKERS:
        (docker / worker).touch()
    ended = Event()

    def load_images() -> None:
        raise SetupError("no such image")

    with pytest.raises(SetupError, match="no such image"):
        imageloading.while_created(ended.set, load_images, workers=WORKERS)
    assert ended.is_set()
