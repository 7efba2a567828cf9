"""When a certificate ends is read as openssl reads it, and is there to be alerted on."""

import asyncio
import ssl
import subprocess
from pathlib import Path

import aiohttp
import pytest
import structlog
from certificates import make_certificate
from running import Running, until

from gpuextender import metrics
from gpuextender.http.server import ServingCertificate
from gpukube.server.certificates import ExpiryError, not_after
from gpukube.testing.apiserver import FakeApiServer
from gpukube.testing.clock import FakeClock


def openssl(*words: str) -> str:
    """What openssl reports."""
    done = subprocess.run(
        ["openssl", *words], check=True, capture_output=True, text=True, timeout=60
    )
    return done.stdout


def end_of(certificate: Path) -> float:
    """The same date by openssl's own reading."""
    words = openssl("x509", "-in", str(certificate), "-noout", "-enddate")
    return float(ssl.cert_time_to_seconds(words.strip().removeprefix("notAfter=")))


@pytest.mark.parametrize("days", [1, 20_000])
@pytest.mark.parametrize("extensions", [(), ("-addext", "subjectAltName=DNS:extender")])
def test_the_end_is_the_one_that_openssl_names(
    tmp_path: Path, days: int, extensions: tuple[str, ...]
) -> None:
    """Both ways to write a date, before 2050 and after; first of a chain is the listener's own."""
    for name in ("tls", "other"):
        made = ("-keyout", str(tmp_path / f"{name}.key"), "-out", str(tmp_path / f"{name}.crt"))
        request = ("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1")
        life = ("-nodes", "-subj", "/CN=extender", "-days", str(days if name == "tls" else 9))
        openssl(*request, *life, *extensions, *made)
    own = tmp_path / "tls.crt"
    chain = own.read_text() + (tmp_path / "other.crt").read_text()
    assert not_after(chain) == end_of(own)


def test_what_is_no_certificate_is_refused(tmp_path: Path) -> None:
    """A file that is being written, or is something else, gives no date and no crash."""
    make_certificate(tmp_path / "tls", "x")
    whole = (tmp_path / "tls" / "tls.crt").read_text()
    body = whole.splitlines()
    for text in ("", (tmp_path / "tls" / "tls.key").read_text(), whole[:200]):
        with pytest.raises(ExpiryError):
            not_after(text)
    with pytest.raises(ExpiryError):
        not_after("\n".join([body[0], *body[1:3], body[-1]]))


@pytest.mark.parametrize("missing", [1, 2, 3, 50])
def test_a_certificate_that_is_cut_off_is_an_error(tmp_path: Path, missing: int) -> None:
    """A file that is being written may lack no more than its last byte."""
    make_certificate(tmp_path, "x")
    whole = ssl.PEM_cert_to_DER_cert((tmp_path / "tls.crt").read_text())
    with pytest.raises(ExpiryError):
        not_after(ssl.DER_cert_to_PEM_cert(whole[:-missing]))


async def test_the_metric_follows_a_renewal(tmp_path: Path, clock: FakeClock) -> None:
    """The date is that of the new certificate once it is used; a broken file changes nothing."""
    make_certificate(tmp_path, "one")
    watcher = ServingCertificate(tmp_path, every=10.0)
    metric = metrics.CERTIFICATE_EXPIRY.labels(str(tmp_path))
    watcher.load()
    task = asyncio.create_task(watcher.follow())
    await asyncio.sleep(5)
    first = end_of(tmp_path / "tls.crt")
    assert metric._value.get() == first
    openssl(
        *("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"),
        *("-subj", "/CN=two", "-days", "9"),
        *("-keyout", str(tmp_path / "tls.key"), "-out", str(tmp_path / "tls.crt")),
    )
    second = end_of(tmp_path / "tls.crt")
    assert metric._value.get() == first != second
    await asyncio.sleep(10)
    assert metric._value.get() == second
    (tmp_path / "tls.crt").write_text("nothing")
    await asyncio.sleep(20)
    assert metric._value.get() == second
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


def test_a_comment_of_any_encoding_hides_no_date(tmp_path: Path) -> None:
    """OpenSSL skips what stands before the certificate; an error here ended the renewals."""
    make_certificate(tmp_path, "one")
    certificate = tmp_path / "tls.crt"
    certificate.write_bytes("Zürich\n".encode("latin-1") + certificate.read_bytes())
    watcher = ServingCertificate(tmp_path)
    watcher.load()
    watcher.loaded()
    assert metrics.CERTIFICATE_EXPIRY.labels(str(tmp_path))._value.get() == end_of(certificate)


def test_a_certificate_without_a_readable_date_leaves_the_metric(tmp_path: Path) -> None:
    """The log names the directory; the listener goes on."""
    make_certificate(tmp_path, "one")
    watcher = ServingCertificate(tmp_path)
    watcher.loaded()
    metric = metrics.CERTIFICATE_EXPIRY.labels(str(tmp_path))
    before = metric._value.get()
    assert before == end_of(tmp_path / "tls.crt")
    with structlog.testing.capture_logs() as logs:
        (tmp_path / "tls.crt").write_text("nothing")
        watcher.loaded()
        (tmp_path / "tls.crt").unlink()
        watcher.loaded()
    assert metric._value.get() == before
    assert [(line["event"], line["folder"]) for line in logs] == [
        ("no date in the certificate", str(tmp_path))
    ] * 2


@pytest.mark.slow
async def test_the_date_is_among_the_metrics(cluster: FakeApiServer, tmp_path: Path) -> None:
    """An alert can tell of a certificate weeks before it stops the scheduler."""
    folder = tmp_path / "tls"
    make_certificate(folder, "one")
    ports = {"metrics_port": 0, "metrics_host": "127.0.0.1"}
    async with Running(cluster, tmp_path, tls_certificates=folder, **ports) as extender:
        probes = extender.service.listeners.metrics
        await until("the metrics port listens", lambda: probes.started)
        url = f"http://127.0.0.1:{probes.port}/metrics"
        async with aiohttp.ClientSession() as http, http.get(url) as reply:
            lines = (await reply.text()).splitlines()
    name = "gpushare_extender_certificate_expiry_timestamp_seconds"
    (line,) = (line for line in lines if line.startswith(f'{name}{{folder="{folder}"}}'))
    assert float(line.split()[-1]) == end_of(folder / "tls.crt")
