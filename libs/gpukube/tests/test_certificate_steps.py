"""The watcher of certificates under a fake clock: when it looks, and what connections get."""

import asyncio
import os
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

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


class Connection:
    """A connection in its handshake."""

    context: ssl.SSLContext | None = None


@asynccontextmanager
async def following(watcher: Counting, context: ssl.SSLContext, known: Any) -> AsyncIterator[None]:
    """Follow the files beside the test."""
    task = asyncio.create_task(watcher.follow(context, known))
    await asyncio.sleep(0.5)
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def used(context: ssl.SSLContext) -> ssl.SSLContext | None:
    """The context that a new connection of this listener uses; None is the listener's own."""
    connection: Any = Connection()
    if context.sni_callback is None:
        return None
    context.sni_callback(connection, "", context)
    found: ssl.SSLContext | None = connection.context
    return found


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
    context, known = await waiting
    assert known == watcher.stamps()
    async with following(watcher, context, known):
        await asyncio.sleep(5 * EVERY)
        assert (watcher.loads, used(context)) == (1, None)
        make_certificate(tmp_path, "localhost")
        await asyncio.sleep(EVERY)
        assert watcher.loads == 2
        newest = used(context)
        assert newest is not None
        assert newest is not context
        made = watcher.contexts
        await asyncio.sleep(5 * EVERY)
        assert (watcher.loads, watcher.contexts) == (2, made)
        assert used(context) is newest


async def test_a_renewal_between_reading_and_following_is_noticed(
    tmp_path: Path, clock: FakeClock
) -> None:
    """The files are compared with those that the context was made of."""
    make_certificate(tmp_path, "localhost")
    watcher = Counting(tmp_path, every=EVERY)
    context, known = await watcher.wait_for_context()
    os.utime(tmp_path / "tls.key", ns=(1, 1))
    async with following(watcher, context, known):
        await asyncio.sleep(EVERY)
        assert used(context) is not None
        assert watcher.loads == 2


async def test_a_file_that_cannot_be_used_is_read_again_and_logged(
    tmp_path: Path, clock: FakeClock
) -> None:
    """The certificate in use stays until a good one is there."""
    make_certificate(tmp_path, "localhost")
    watcher = Counting(tmp_path, every=EVERY)
    context, known = await watcher.wait_for_context()
    good = (tmp_path / "tls.crt").read_text()
    async with following(watcher, context, known):
        (tmp_path / "tls.crt").write_text("nothing")
        with structlog.testing.capture_logs() as logs:
            await asyncio.sleep(2 * EVERY)
        assert [line["event"] for line in logs] == ["certificates not loaded"] * 2
        assert {line["folder"] for line in logs} == {str(tmp_path)}
        assert (watcher.loads, used(context)) == (1, None)
        (tmp_path / "tls.crt").write_text(good)
        with structlog.testing.capture_logs() as logs:
            await asyncio.sleep(EVERY)
        assert (watcher.loads, used(context) is None) == (2, False)
        assert [(line["event"], line["folder"]) for line in logs] == [
            ("certificates taken", str(tmp_path))
        ]


async def test_a_new_authority_of_clients_is_taken(tmp_path: Path, clock: FakeClock) -> None:
    """The third file counts like the other two."""
    make_certificate(tmp_path, "localhost")
    authority = tmp_path / "ca.crt"
    authority.write_text((tmp_path / "tls.crt").read_text())
    watcher = Counting(tmp_path, authority, every=EVERY)
    assert watcher.present()
    context, known = await watcher.wait_for_context()
    assert len(known) == 3
    os.utime(authority, ns=(1, 1))
    async with following(watcher, context, known):
        await asyncio.sleep(EVERY)
        newest = used(context)
        assert newest is not None
        assert newest.verify_mode is ssl.CERT_REQUIRED
        authority.unlink()
        assert watcher.stamps()[2] == 0
        assert not watcher.present()
