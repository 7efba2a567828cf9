"""Two builds of the service images do not meet: they use the same temporary names."""

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from cluster import baseimage
from environments import serviceimages
from host import cachedir
from images import base as bases
from images import build, catalogue, old

pytestmark = pytest.mark.usefixtures("cache")


class Engine:
    """An engine without images, in place of :mod:`host.docker`.

    Attributes:
        names: of its images.
        built: names in the order in which they were built.
    """

    def __init__(self) -> None:
        self.names: set[str] = set()
        self.built: list[str] = []
        self.used: list[str] = []

    def make(self, image: Any, base: Any, name: str, **_how: Any) -> None:
        """Build an image, while nobody else can."""
        with (cachedir.root() / ".images.lock").open("w") as file, pytest.raises(BlockingIOError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        self.names.add(name)
        self.built.append(name)

    def has_image(self, name: str) -> bool:
        return name in self.names

    def identity(self, name: str) -> str:
        return f"id of {name}" if name in self.names else ""

    def remove(self, names: list[str]) -> None:
        self.names -= set(names)

    def mark_used(self, name: str) -> None:
        self.used.append(name)


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Engine:
    """Images have their names as tags, and no base is looked at."""
    found = Engine()
    for module in (build, serviceimages):
        monkeypatch.setattr(module, "docker", found)
    monkeypatch.setattr(build, "make", found.make)
    monkeypatch.setattr(bases, "probe", lambda name: None)
    monkeypatch.setattr(baseimage, "ensure", lambda target=None: "base")
    monkeypatch.setattr(catalogue.Image, "tag", lambda image, base: f"gpushare/{image.name}:key")
    monkeypatch.setattr(old, "forget", lambda repositories, *, keep: None)
    return found


ALL = [f"gpushare/{image.name}:key" for image in catalogue.GROUNDS_FIRST]


def test_images_are_built_by_one_process_at_a_time(engine: Engine) -> None:
    """Each holds the lock for all of its builds."""
    build.ensure()
    assert engine.built == ALL
    assert engine.used == ALL


def test_images_that_another_process_built_meanwhile_are_not_built_again(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once the lock is free, they are there."""
    locked = cachedir.locked

    @contextmanager
    def after_another_build(name: str) -> Iterator[None]:
        with locked(name):
            engine.names |= set(ALL)
            yield

    monkeypatch.setattr(cachedir, "locked", after_another_build)
    build.ensure()
    assert engine.built == []


def test_images_that_are_there_need_no_lock(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run does not wait for minutes until another checkout has built its own."""
    engine.names |= set(ALL)
    monkeypatch.setattr(cachedir, "locked", lambda name: pytest.fail(f"waits for {name}"))
    build.ensure()
    assert engine.used == ALL


def test_images_that_are_built_again_meet_no_other_build(engine: Engine) -> None:
    """All of them to compare, or one by a case; none of these is kept."""
    engine.names |= set(ALL)
    compared = list(build.repeated())
    assert compared == [(name, f"id of {name}", f"id of {name}-again") for name in ALL]
    assert serviceimages.identity_built_again(catalogue.EXTENDER).startswith("id of ")
    assert engine.names == set(ALL)
    assert engine.built[:-1] == [f"{name}-again" for name in ALL]
