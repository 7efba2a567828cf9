"""The watcher of certificates: what it waits for, what it takes, and what it leaves."""

import asyncio
import ssl
from pathlib import Path

import pytest

from gpukube.server.certificates import CertificateWatcher
from gpukube.testing.certificates import make_certificate
from gpukube.testing.waiting import until


class Counting(CertificateWatcher):
    """Counts its looks at the files, and what it loaded."""

    looks = count = 0

    def stamps(self) -> tuple[int, ...]:
        self.looks += 1
        return super().stamps()

    def loaded(self) -> None:
        self.count += 1

    async def looked(self) -> None:
        """Wait until it has looked at the files as they are, and judged them."""
        seen = self.looks
        await until("two more looks", lambda: self.looks >= seen + 2)


async def test_it_waits_for_files_that_can_be_used(tmp_path: Path) -> None:
    """A Secret that is filled after the start, and at first with something else."""
    watcher = Counting(tmp_path, every=0.01)
    waiting = asyncio.create_task(watcher.wait_for_context())
    assert watcher.newest is None
    for file in watcher.chain:
        file.write_text("nothing")
    await watcher.looked()
    assert not waiting.done()
    make_certificate(tmp_path, "localhost")
    await asyncio.wait_for(waiting, 45)
    assert isinstance(watcher.newest, ssl.SSLContext)


async def test_a_new_certificate_is_used_and_a_broken_one_is_not(tmp_path: Path) -> None:
    """New connections use the newest one, with a context of its own."""
    make_certificate(tmp_path, "localhost")
    watcher = Counting(tmp_path, every=0.01)
    await watcher.wait_for_context()
    first = watcher.newest
    following = asyncio.create_task(watcher.follow())
    await until("begun", lambda: watcher.count == 1)
    (tmp_path / "tls.crt").write_text("nothing")
    await watcher.looked()
    assert (watcher.count, watcher.newest) == (1, first)
    make_certificate(tmp_path, "localhost")
    await until("taken", lambda: watcher.count == 2)
    assert watcher.newest is not first
    following.cancel()
    await asyncio.gather(following, return_exceptions=True)


def test_clients_are_verified_where_there_is_an_authority(tmp_path: Path) -> None:
    """Without one no client certificate is requested."""
    make_certificate(tmp_path, "localhost")
    assert CertificateWatcher(tmp_path).context().verify_mode is ssl.CERT_NONE
    watcher = CertificateWatcher(tmp_path, tmp_path / "ca.crt")
    with pytest.raises(OSError, match="No such file"):
        watcher.context()
    (tmp_path / "ca.crt").write_text((tmp_path / "tls.crt").read_text())
    assert watcher.context().verify_mode is ssl.CERT_REQUIRED
