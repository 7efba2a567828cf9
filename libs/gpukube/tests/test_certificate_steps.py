"""The watcher of certificates under a fake clock: when it looks, and what connections get."""

import asyncio
import os
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import structlog

from gpukube.server.certificates import CertificateWatcher
from gpukube.testing.certificates import make_certificate
from gpukube.testing.clock import FakeClock

EVERY = 10.0


class Counting(CertificateWatcher):
    """Counts certificates that were loaded, and contexts that were made."""

    loads = contexts = 0

    def loaded(self) -> None:
        self.loads += 1

    def context(self) -> ssl.SSLContext:
        self.contexts += 1
        return super().context()


@asynccontextmanager
async def following(watcher: Counting) -> AsyncIterator[None]:
    """Follow the files beside the test."""
    task = asyncio.create_task(watcher.follow())
    await asyncio.sleep(0.5)
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_it_looks_at_the_files_at_its_interval(tmp_path: Path, clock: FakeClock) -> None:
    """Missing files are looked for again; those that were renewed later are taken once."""
    watcher = Counting(tmp_path, every=EVERY)
    assert watcher.stamps() == (0, 0)
    waiting = asyncio.create_task(watcher.wait_for_context())
    await asyncio.sleep(0.5)
    make_certificate(tmp_path, "localhost")
    await asyncio.sleep(EVERY - 1)
    assert not waiting.done()
    await asyncio.sleep(1)
    await waiting
    context = watcher.newest
    async with following(watcher):
        await asyncio.sleep(5 * EVERY)
        assert (watcher.loads, watcher.newest) == (1, context)
        make_certificate(tmp_path, "localhost")
        await asyncio.sleep(EVERY)
        assert watcher.loads == 2
        newest = watcher.newest
        assert newest is not context
        made = watcher.contexts
        await asyncio.sleep(5 * EVERY)
        assert (watcher.loads, watcher.contexts) == (2, made)
        assert watcher.newest is newest


async def test_a_renewal_between_reading_and_following_is_noticed(
    tmp_path: Path, clock: FakeClock
) -> None:
    """The files are compared with those that the context was made of."""
    make_certificate(tmp_path, "localhost")
    watcher = Counting(tmp_path, every=EVERY)
    await watcher.wait_for_context()
    context = watcher.newest
    os.utime(tmp_path / "tls.key", ns=(1, 1))
    async with following(watcher):
        await asyncio.sleep(EVERY)
        assert watcher.newest is not context
        assert watcher.loads == 2


async def test_a_file_that_cannot_be_used_is_read_again_and_logged(
    tmp_path: Path, clock: FakeClock
) -> None:
    """The certificate in use stays until a good one is there."""
    make_certificate(tmp_path, "localhost")
    watcher = Counting(tmp_path, every=EVERY)
    await watcher.wait_for_context()
    context = watcher.newest
    good = (tmp_path / "tls.crt").read_text()
    async with following(watcher):
        (tmp_path / "tls.crt").write_text("nothing")
        with structlog.testing.capture_logs() as logs:
            await asyncio.sleep(2 * EVERY)
        assert [line["event"] for line in logs] == ["certificates not loaded"] * 2
        assert {line["folder"] for line in logs} == {str(tmp_path)}
        assert (watcher.loads, watcher.newest) == (1, context)
        (tmp_path / "tls.crt").write_text(good)
        with structlog.testing.capture_logs() as logs:
            await asyncio.sleep(EVERY)
        assert (watcher.loads, watcher.newest is context) == (2, False)
        assert [(line["event"], line["folder"]) for line in logs] == [
            ("certificates taken", str(tmp_path))
        ]


async def test_a_new_authority_of_clients_is_taken(tmp_path: Path, clock: FakeClock) -> None:
    """The third file counts like the other two."""
    make_certificate(tmp_path, "localhost")
    authority = tmp_path / "ca.crt"
    authority.write_text((tmp_path / "tls.crt").read_text())
    watcher = Counting(tmp_path, authority, every=EVERY)
    await watcher.wait_for_context()
    context = watcher.newest
    assert len(watcher.stamps()) == 3
    os.utime(authority, ns=(1, 1))
    async with following(watcher):
        await asyncio.sleep(EVERY)
        assert watcher.newest is not context
        assert watcher.newest is not None
        assert watcher.newest.verify_mode is ssl.CERT_REQUIRED
        authority.unlink()
        assert watcher.stamps()[2] == 0


async def test_a_file_that_cannot_be_looked_at_ends_nothing(
    tmp_path: Path, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A Secret may be replaced between two looks; the watch goes on, and takes the next one."""
    make_certificate(tmp_path, "localhost")
    watcher = Counting(tmp_path, every=EVERY)
    await watcher.wait_for_context()
    async with following(watcher):
        with monkeypatch.context() as patch:
            patch.setattr(Path, "exists", lambda _: True)
            patch.setattr(Path, "stat", failing)
            await asyncio.sleep(2 * EVERY)
        make_certificate(tmp_path, "localhost")
        await asyncio.sleep(EVERY)
        assert watcher.loads >= 2


def failing(_: Path) -> None:
    """A file system that fails, such as that of a volume which is being mounted anew."""
    raise PermissionError("not now")
