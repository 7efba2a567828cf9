"""Where the process listens: the verbs over TLS, and probes and metrics on a port of their own."""

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import structlog
from certificates import RSA, make_certificate, no_questions, shown, sign, trusting
from objects import node, pod
from pydantic import ValidationError
from pydantic_settings import CliApp
from running import WAIT_SECONDS, Running, until

from gpuextender.http.server import VERBS, ExtenderServer, ServingCertificate
from gpuextender.settings import ExtenderSettings
from gpukube.server.connections import ConnectionGate
from gpukube.testing.apiserver import FakeApiServer


async def text(url: str, **how: object) -> tuple[int, str]:
    """Status and text of a GET."""
    async with aiohttp.ClientSession() as http, http.get(url, **how) as reply:
        return reply.status, await reply.text()


def test_a_scheduler_on_another_machine_binds_as_fast_as_it_can() -> None:
    """kube-scheduler opens 1.5 connections for a pod at worst, and places hundreds in a second."""
    now = 0.0
    gate = ConnectionGate(VERBS.connections, lambda: now)
    with socket.socket() as sock:
        for number in range(60 * 600):
            now = number / 600
            connection = gate.admit(sock, ("10.0.0.9", number))
            assert connection is not None, f"refused after {now:.0f} s"
            gate.forget(connection)


@asynccontextmanager
async def over_tls(
    cluster: FakeApiServer, tmp_path: Path, folder: Path
) -> AsyncIterator[ExtenderServer]:
    """The metrics port of an extender, under a certificate of ``folder`` that it follows."""
    make_certificate(folder, "first")
    own_port = {"metrics_port": 0, "metrics_host": "127.0.0.1"}
    settings = {**own_port, "metrics_certificates": folder, "certificates_reload": 0.02}
    async with Running(cluster, tmp_path, **settings) as extender:
        await extender.ready()
        probes = extender.service.listeners.metrics
        await until("the metrics port listens", lambda: probes.started)
        yield probes


@pytest.mark.slow
async def test_probes_and_metrics_have_a_port_of_their_own(
    cluster: FakeApiServer, tmp_path: Path
) -> None:
    """It answers probes and metrics and no verb, so that it may be open where verbs may not."""
    await cluster.put("nodes", node("n", 15, unit="GiB"))
    async with Running(cluster, tmp_path, metrics_port=0, metrics_host="127.0.0.1") as extender:
        await extender.ready()
        probes = extender.service.listeners.metrics
        await until("the metrics port listens", lambda: probes.started)
        url = f"http://127.0.0.1:{probes.port}"
        assert await text(f"{url}/healthz") == (200, "ok")
        assert await text(f"{url}/readyz") == (200, "ok")
        status, figures = await text(f"{url}/metrics")
        assert status == 200
        assert 'gpushare_extender_gpu_units{gpu="0",kind="total",node="n"} 15.0' in figures
        for path in ("/gpushare-scheduler/filter", "/gpushare-scheduler/inspect", "/api/v1/nodes"):
            assert (await text(url + path))[0] == 404
        assert await extender.get("/readyz") == (200, "ok")
    assert probes.should_exit


@pytest.mark.slow
async def test_metrics_over_tls_follow_their_certificate(
    cluster: FakeApiServer, tmp_path: Path
) -> None:
    """Who trusts the authority is answered and plain HTTP is not; a new one is shown once there."""
    folder = tmp_path / "metrics"
    async with over_tls(cluster, tmp_path, folder) as probes:
        place = f"127.0.0.1:{probes.port}/metrics"
        status, figures = await text(f"https://{place}", ssl=trusting(folder))
        assert status == 200
        assert "gpushare_extender_certificate_expiry_timestamp_seconds" in figures
        with pytest.raises((aiohttp.ClientError, ConnectionError)):
            await text(f"http://{place}")
        first = await shown(probes.port)
        make_certificate(folder, "two", RSA)  # a context would keep it beside the first
        async with asyncio.timeout(WAIT_SECONDS):
            while await shown(probes.port) == first:
                assert probes.started


@pytest.mark.slow
async def test_a_broken_certificate_changes_nothing(cluster: FakeApiServer, tmp_path: Path) -> None:
    """A key that does not fit is not taken, and the port goes on with what it has."""
    folder = tmp_path / "metrics"
    async with over_tls(cluster, tmp_path, folder) as probes:
        good = await shown(probes.port)
        with structlog.testing.capture_logs() as logged:
            (folder / "tls.key").write_text("no key")
            refused = {"event": "certificates not loaded", "folder": str(folder)}
            await until(
                "it was looked at", lambda: any(refused.items() <= x.items() for x in logged)
            )
        assert await shown(probes.port) == good


async def test_a_certificate_that_changes_while_it_is_being_read_is_read_again(
    tmp_path: Path,
) -> None:
    """A Secret may be renewed between the first reading and the first look for changes."""
    make_certificate(tmp_path, "one")
    certificates = ServingCertificate(tmp_path, every=0.01)
    context = certificates.load()
    make_certificate(tmp_path, "two")
    following = asyncio.create_task(certificates.follow())
    await until("the new one is taken", lambda: certificates.newest is not context)
    following.cancel()


@pytest.mark.slow
async def test_unready_is_reported_on_the_metrics_port(
    cluster: FakeApiServer, tmp_path: Path
) -> None:
    """Both ports say the same of readiness, for kubelet may ask either."""
    async with Running(cluster, tmp_path, metrics_port=0, metrics_host="127.0.0.1") as extender:
        await extender.ready()
        probes = extender.service.listeners.metrics
        await until("the metrics port listens", lambda: probes.started)
        extender.service.health.draining = True
        answer = await text(f"http://127.0.0.1:{probes.port}/readyz")
        assert answer == (503, "shutting down") == await extender.get("/readyz")


@pytest.mark.slow
async def test_verbs_over_tls_follow_their_certificate(
    cluster: FakeApiServer, tmp_path: Path
) -> None:
    """The scheduler that trusts the certificate is answered; a new one is shown once there."""
    folder = tmp_path / "tls"
    make_certificate(folder, "one")
    await cluster.put("nodes", node("n", 15, unit="GiB"))
    settings = {"tls_certificates": folder, "certificates_reload": 0.02}
    async with Running(cluster, tmp_path, **settings) as extender:
        await extender.ready()
        port = extender.service.listeners.verbs.port
        body = {"Pod": pod("p", 2), "Nodes": None, "NodeNames": ["n"]}
        verb = f"https://127.0.0.1:{port}/gpushare-scheduler/filter"
        async with (
            aiohttp.ClientSession() as http,
            http.post(verb, json=body, ssl=trusting(folder)) as reply,
        ):
            assert (await reply.json())["NodeNames"] == ["n"]
        first = await shown(port)
        make_certificate(folder, "two")
        async with asyncio.timeout(WAIT_SECONDS):
            while await shown(port) == first:
                assert extender.service.listeners.verbs.started


@pytest.mark.slow
async def test_a_client_without_a_certificate_is_turned_away(
    cluster: FakeApiServer, tmp_path: Path
) -> None:
    """With an authority for clients nobody can bind pods who was not given a certificate by it."""
    folder = tmp_path / "tls"
    make_certificate(folder, "both")
    settings = {
        "tls_certificates": folder,
        "tls_client_ca": folder / "tls.crt",
        "tls_client_names": "both",
    }
    async with Running(cluster, tmp_path, **settings) as extender:
        await extender.ready()
        url = f"https://127.0.0.1:{extender.service.listeners.verbs.port}/version"
        stranger = trusting(folder)
        with pytest.raises((aiohttp.ClientError, ssl.SSLError, ConnectionError)):
            await text(url, ssl=stranger)
        known = trusting(folder)
        known.load_cert_chain(folder / "tls.crt", folder / "tls.key")
        assert (await text(url, ssl=known))[0] == 200


@pytest.mark.slow
async def test_only_the_named_clients_of_an_authority_are_let_in(
    cluster: FakeApiServer, tmp_path: Path
) -> None:
    """An authority may sign for others too: its certificate alone is no leave to bind pods."""
    folder = tmp_path / "tls"
    make_certificate(folder, "verbs")
    for name in ("scheduler", "somebody"):
        sign(folder, tmp_path / name, name)
    sign(folder, tmp_path / "san", "x", "-addext", "subjectAltName=DNS:other.example,DNS:second")
    settings = {
        "tls_certificates": folder,
        "tls_client_ca": folder / "tls.crt",
        "tls_client_names": "scheduler,second",
    }
    async with Running(cluster, tmp_path, **settings) as extender:
        await extender.ready()
        url = f"https://127.0.0.1:{extender.service.listeners.verbs.port}/version"
        statuses = {}
        for name in ("scheduler", "somebody", "san"):
            client = trusting(folder)
            client.load_cert_chain(tmp_path / name / "tls.crt", tmp_path / name / "tls.key")
            statuses[name], reason = await text(url, ssl=client)
            if name == "somebody":
                assert reason == "client certificate of somebody: not among tls-client-names"
    assert statuses == {"scheduler": 200, "somebody": 403, "san": 200}


def authority_to_replace(folder: Path) -> tuple[Path, Path, dict[str, Any]]:
    """Certificates of the server and of a client that it admits, and the server's settings."""
    now, before = folder / "tls", folder / "before"
    for each in (now, before):
        make_certificate(each, "verbs")
    (now / "ca.crt").write_bytes((before / "tls.crt").read_bytes())
    names = {"tls_client_ca": now / "ca.crt", "tls_client_names": "verbs"}
    return now, before, {"tls_certificates": now, **names}


@pytest.mark.slow
async def test_an_authority_that_was_replaced_lets_nobody_in(
    cluster: FakeApiServer, tmp_path: Path
) -> None:
    """Whose certificate is of the authority before may not bind once there is another."""
    now, before, settings = authority_to_replace(tmp_path)
    async with Running(cluster, tmp_path, certificates_reload=0.02, **settings) as extender:
        await extender.ready()
        url = f"https://127.0.0.1:{extender.service.listeners.verbs.port}/version"
        assert await let_in(url, before, trusting(now))
        (now / "ca.crt").write_bytes((now / "tls.crt").read_bytes())
        async with asyncio.timeout(WAIT_SECONDS):
            while await let_in(url, before, trusting(now)):
                assert not extender.task.done()
        assert await let_in(url, now, trusting(now))


@pytest.mark.slow
@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_a_client_of_the_authority_before_resumes_no_session(
    cluster: FakeApiServer, tmp_path: Path, version: ssl.TLSVersion
) -> None:
    """In a resumed session a client shows no certificate: it could bind pods for ever."""
    now, before, settings = authority_to_replace(tmp_path)
    async with Running(cluster, tmp_path, certificates_reload=0.02, **settings) as extender:
        await extender.ready()
        listener = extender.service.listeners.verbs
        client = trusting(now)
        client.load_cert_chain(before / "tls.crt", before / "tls.key")
        client.maximum_version = version
        answer, session = await asyncio.to_thread(version_of, listener.port, client)
        assert b" 200 " in answer
        answer, session = await asyncio.to_thread(version_of, listener.port, client, session)
        assert b" 200 " in answer
        with structlog.testing.capture_logs() as logged:
            (now / "ca.crt").write_bytes((now / "tls.crt").read_bytes())
            taken = {"event": "certificates taken"}
            await until("taken", lambda: any(taken.items() <= line.items() for line in logged))
        answer, _ = await asyncio.to_thread(version_of, listener.port, client, session)
        assert answer == b""


def version_of(
    port: int, client: ssl.SSLContext, session: ssl.SSLSession | None = None
) -> tuple[bytes, ssl.SSLSession | None]:
    """The reply to a request over TLS, empty where there is none; and the session to resume."""
    with (
        socket.create_connection(("127.0.0.1", port), WAIT_SECONDS) as plain,
        suppress(ssl.SSLError, ConnectionError),
        client.wrap_socket(plain, server_hostname="127.0.0.1", session=session) as connection,
    ):
        connection.sendall(b"GET /version HTTP/1.1\r\nHost: x\r\n\r\n")
        return connection.recv(4096), connection.session
    return b"", None


async def let_in(url: str, folder: Path, client: ssl.SSLContext) -> bool:
    """Whether a client with the certificate in the folder is answered."""
    client.load_cert_chain(folder / "tls.crt", folder / "tls.key")
    try:
        return (await text(url, ssl=client))[0] == 200
    except (aiohttp.ClientError, ssl.SSLError, ConnectionError):
        return False


@pytest.mark.slow
async def test_it_can_be_stopped_while_it_waits_for_certificates(
    cluster: FakeApiServer, tmp_path: Path
) -> None:
    """A Secret that never comes must not keep the process from ending."""
    settings = {"webhook_port": 0, "webhook_certificates": tmp_path, "certificates_reload": 0.02}
    async with asyncio.timeout(WAIT_SECONDS), Running(cluster, tmp_path, **settings) as extender:
        await extender.ready()
        assert not extender.service.listeners.admission.started


@pytest.mark.slow
@pytest.mark.parametrize("port", ["metrics", "webhook"])
async def test_a_certificate_that_cannot_be_used_stops_no_scheduling(
    cluster: FakeApiServer, tmp_path: Path, port: str
) -> None:
    """Its port waits for a usable one, unready, so that an update keeps the processes before it."""
    folder = tmp_path / "tls"
    make_certificate(folder, "one")
    key = (folder / "tls.key").read_bytes()
    (folder / "tls.key").write_bytes(b"")
    settings = {f"{port}_port": 0, f"{port}_certificates": folder, "certificates_reload": 0.02}
    await cluster.put("nodes", node("n", 15, unit="GiB"))
    with structlog.testing.capture_logs() as logged:
        async with Running(cluster, tmp_path, metrics_host="127.0.0.1", **settings) as extender:
            await extender.ready()
            refused = {"event": "certificates not loaded", "folder": str(folder)}
            await until("a look", lambda: any(refused.items() <= line.items() for line in logged))
            assert not extender.task.done()
            assert await extender.get("/readyz") == (503, f"no usable certificate in {folder} yet")
            assert (await extender.filter(pod("p", 2), "n"))["NodeNames"] == ["n"]
            (folder / "tls.key").write_bytes(key)
            beside = extender.service.listeners.all[1]
            await until("the port listens", lambda: beside.started)
            await shown(beside.port)
            assert await extender.get("/readyz") == (200, "ok")


@pytest.mark.slow
async def test_what_is_in_flight_beside_the_verbs_is_answered_before_the_end(
    cluster: FakeApiServer, tmp_path: Path
) -> None:
    """A review that has begun would else fail its pod, and every socket is closed at the end."""
    make_certificate(tmp_path, "webhook")
    settings = {"webhook_port": 0, "webhook_certificates": tmp_path}
    async with Running(cluster, tmp_path, **settings) as extender:
        hook = extender.service.listeners.admission
        await until("the webhook listens", lambda: hook.started)
        reader, writer = await asyncio.open_connection("127.0.0.1", hook.port, ssl=no_questions())
        writer.write(b"POST /admit HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{")
        await until("it is being read", lambda: hook.server_state.tasks)
        extender.service.stop()
        ended, _ = await asyncio.wait({extender.task}, timeout=1)
        assert not ended
        writer.write(b"}")
        assert b" 400 " in await asyncio.wait_for(reader.readline(), WAIT_SECONDS)
        writer.transport.abort()
    assert not hook.servers[0].is_serving()


def test_an_authority_for_clients_needs_tls() -> None:
    """Without TLS it would be silently in vain."""
    with pytest.raises(ValidationError, match="tls-client-ca needs tls-certificates"):
        CliApp.run(
            ExtenderSettings, cli_args=["--tls-client-ca", "ca.crt", "--tls-client-names", "me"]
        )


@pytest.mark.parametrize("given", ["--tls-client-ca=ca.crt", "--tls-client-names=me"])
def test_an_authority_and_the_names_of_its_clients_belong_together(given: str) -> None:
    """Without names whoever has a certificate of the authority could bind pods."""
    with pytest.raises(ValidationError, match="tls-client-ca and tls-client-names"):
        CliApp.run(ExtenderSettings, cli_args=["--tls-certificates=tls", given])


def test_variables_of_a_service_of_our_name_are_passed_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Kubernetes sets GPUSHARE_METRICS_PORT=tcp://... where a service is named gpushare-metrics."""
    monkeypatch.setenv("GPUSHARE_METRICS_PORT", "tcp://10.96.0.7:9090")
    monkeypatch.setenv("GPUSHARE_WEBHOOK_PORT", "9443")
    settings = CliApp.run(ExtenderSettings, cli_args=[])
    assert (settings.metrics_port, settings.webhook_port) == (None, 9443)
