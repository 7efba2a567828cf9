"""Certificates that the Job of the chart issues, over a fake API server and real TLS."""

import asyncio
import ssl
from base64 import b64decode, b64encode
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from gpukube.client import HttpKubeClient
from gpukube.errors import ConflictError, UnreachableError
from gpukube.issuing.__main__ import main
from gpukube.issuing.authority import Authority, CertificateRequest
from gpukube.issuing.plan import (
    Plan,
    PlanError,
    WebhookPlan,
    client_plan,
    server_plan,
    webhook_plan,
)
from gpukube.issuing.secrets import CertificateIssuer, RenewalError
from gpukube.testing.apiserver import FakeApiServer

pytestmark = pytest.mark.slow

NOW = datetime(2026, 11, 22, tzinfo=UTC)
NAMES = ("authorities", "server", "client", "other")
PLAN = Plan(
    "ns",
    "authorities",
    (
        server_plan("server=server.ns.svc", 365),
        client_plan("client@server=scheduler", 365),
        server_plan("other=other.ns.svc,localhost,127.0.0.1", 365),
    ),
    (webhook_plan("hook@server=pods.gpushare.io"),),
)


def secret(name: str) -> dict[str, Any]:
    """A Secret as the chart renders it."""
    return {"kind": "Secret", "metadata": {"name": name, "namespace": "ns"}, "type": "Opaque"}


@pytest.fixture
async def server() -> AsyncIterator[FakeApiServer]:
    """A cluster in which the chart was just installed."""
    async with FakeApiServer() as running:
        for name in NAMES:
            await running.put("secrets", secret(name))
        hook = {"name": "pods.gpushare.io", "clientConfig": {"service": {"name": "server"}}}
        await running.put(
            "mutatingwebhookconfigurations", {"metadata": {"name": "hook"}, "webhooks": [hook]}
        )
        yield running


@pytest.fixture
async def client(server: FakeApiServer, tmp_path: Path) -> AsyncIterator[HttpKubeClient]:
    """A client of it."""
    config = server.write_kubeconfig(tmp_path)
    async with await HttpKubeClient.connect(config, user_agent="test") as connected:
        yield connected


def data(server: FakeApiServer, name: str) -> dict[str, bytes]:
    """The decoded data of a Secret."""
    found = server.find("secrets", name, "ns").get("data", {})
    return {key: b64decode(text) for key, text in found.items()}


def context(server: FakeApiServer, name: str, folder: Path, purpose: int) -> ssl.SSLContext:
    """A TLS context of the files of a Secret."""
    folder.mkdir(exist_ok=True)
    for key, value in data(server, name).items():
        (folder / key).write_bytes(value)
    made = ssl.SSLContext(purpose)
    made.load_cert_chain(folder / "tls.crt", folder / "tls.key")
    made.load_verify_locations(folder / "ca.crt")
    made.verify_mode = ssl.CERT_REQUIRED
    return made


def shake_hands(serving: ssl.SSLContext, calling: ssl.SSLContext, host: str) -> None:
    """Let two contexts agree in memory; raises what a real handshake would."""
    up, down = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [
        calling.wrap_bio(down, up, server_hostname=host),
        serving.wrap_bio(up, down, server_side=True),
    ]
    waiting = list(ends)
    for _ in range(10):
        for end in list(waiting):
            try:
                end.do_handshake()
                waiting.remove(end)
            except ssl.SSLWantReadError:
                continue
    assert not waiting


async def test_empty_secrets_are_filled_with_pairs_that_trust_each_other(
    server: FakeApiServer, client: HttpKubeClient, tmp_path: Path
) -> None:
    """The client's pair opens a connection to the server, under the server's name alone."""
    assert await CertificateIssuer(client, PLAN, datetime.now(UTC)).renew() == 5
    serving = context(server, "server", tmp_path / "s", ssl.PROTOCOL_TLS_SERVER)
    calling = context(server, "client", tmp_path / "c", ssl.PROTOCOL_TLS_CLIENT)
    shake_hands(serving, calling, "server.ns.svc")
    with pytest.raises(ssl.SSLError):
        shake_hands(serving, calling, "other.ns.svc")


@pytest.mark.parametrize("stranger", ["other", "server"])
async def test_the_key_of_a_server_authenticates_no_client(
    server: FakeApiServer, client: HttpKubeClient, tmp_path: Path, stranger: str
) -> None:
    """Neither that of another component nor the server's own: each is limited to its use."""
    await CertificateIssuer(client, PLAN, datetime.now(UTC)).renew()
    serving = context(server, "server", tmp_path / "s", ssl.PROTOCOL_TLS_SERVER)
    calling = context(server, stranger, tmp_path / "c", ssl.PROTOCOL_TLS_CLIENT)
    calling.load_verify_locations(tmp_path / "s" / "ca.crt")
    with pytest.raises(ssl.SSLError):
        shake_hands(serving, calling, "server.ns.svc")


async def test_a_second_run_writes_nothing(server: FakeApiServer, client: HttpKubeClient) -> None:
    """Another run, by a CronJob or by hand, changes no certificate."""
    await CertificateIssuer(client, PLAN, NOW).renew()
    before = {name: data(server, name) for name in NAMES}
    assert await CertificateIssuer(client, PLAN, NOW + timedelta(days=200)).renew() == 0
    assert {name: data(server, name) for name in NAMES} == before


async def test_a_certificate_is_renewed_in_the_last_third_of_its_validity(
    server: FakeApiServer, client: HttpKubeClient
) -> None:
    """The authority stays, so that clients trust the new certificate."""
    await CertificateIssuer(client, PLAN, NOW).renew()
    before = {name: data(server, name) for name in NAMES}
    assert await CertificateIssuer(client, PLAN, NOW + timedelta(days=244)).renew() == 3
    after = {name: data(server, name) for name in NAMES}
    assert after["authorities"] == before["authorities"]
    for name in ("server", "client", "other"):
        assert after[name]["ca.crt"] == before[name]["ca.crt"]
        assert after[name]["tls.crt"] != before[name]["tls.crt"]


async def test_an_authority_near_its_end_is_replaced_with_all_that_it_signed(
    server: FakeApiServer, client: HttpKubeClient
) -> None:
    """No certificate outlives its authority, and the webhook trusts the new one."""
    await CertificateIssuer(client, PLAN, NOW).renew()
    before = data(server, "authorities")
    await CertificateIssuer(client, PLAN, NOW + timedelta(days=3300)).renew()
    assert data(server, "authorities")["server.crt"] != before["server.crt"]
    assert data(server, "server")["ca.crt"] == data(server, "authorities")["server.crt"]
    assert data(server, "client")["ca.crt"] == data(server, "authorities")["server.crt"]
    new = data(server, "authorities")["server.crt"]
    await CertificateIssuer(client, PLAN, NOW + timedelta(days=3301)).renew()
    assert trusted(server) == [new]


@pytest.mark.parametrize("emptied", [True, False])
async def test_the_webhook_is_called_while_its_pods_serve_the_certificate_before(
    server: FakeApiServer, client: HttpKubeClient, tmp_path: Path, *, emptied: bool
) -> None:
    """Pods reload a Secret within two minutes; the API server trusts both authorities then."""
    first = datetime.now(UTC)
    await CertificateIssuer(client, PLAN, first).renew()
    before = context(server, "server", tmp_path / "before", ssl.PROTOCOL_TLS_SERVER)
    if emptied:
        await server.put("secrets", secret("authorities"))
    else:
        await expire(server, first)
    for minutes in (0, 2, 9):
        run = first + timedelta(minutes=minutes)
        assert await CertificateIssuer(client, PLAN, run).renew() == (0 if minutes else 5)
        after = context(server, "server", tmp_path / "after", ssl.PROTOCOL_TLS_SERVER)
        for serving in (before, after):
            serving.verify_mode = ssl.CERT_NONE
            shake_hands(serving, webhook_client(server), "server.ns.svc")
    assert await CertificateIssuer(client, PLAN, first + timedelta(days=1)).renew() == 1
    shake_hands(after, webhook_client(server), "server.ns.svc")
    with pytest.raises(ssl.SSLError):
        shake_hands(before, webhook_client(server), "server.ns.svc")


async def test_no_pod_serves_a_certificate_that_the_api_server_does_not_trust_yet(
    server: FakeApiServer,
    client: HttpKubeClient,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """While its bundle cannot be written, a webhook keeps the certificate that the bundle verifies.

    A pod that starts meanwhile mounts the Secret at once.
    """
    first = datetime.now(UTC) - timedelta(hours=1)
    await CertificateIssuer(client, PLAN, first).renew()
    await expire(server, first)
    write = client.patch

    async def refused(path: str, body: Any) -> bytes:
        if path.endswith("/hook"):
            raise UnreachableError("the API server does not respond")
        return await write(path, body)

    monkeypatch.setattr(client, "patch", refused)
    for minutes in (0, 1, 20):
        with pytest.raises(RenewalError, match="does not respond"):
            await CertificateIssuer(client, PLAN, first + timedelta(minutes=minutes)).renew()
        call_webhook(server, tmp_path)
        assert data(server, "other")["ca.crt"] == data(server, "authorities")["other.crt"]
    monkeypatch.undo()
    assert await CertificateIssuer(client, PLAN, first + timedelta(minutes=30)).renew() == 3
    call_webhook(server, tmp_path)


async def test_a_run_that_is_overtaken_does_not_remove_the_authority_of_the_other(
    server: FakeApiServer,
    client: HttpKubeClient,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It read the authorities before another run replaced them, and is repeated."""
    first = datetime.now(UTC) - timedelta(days=1)
    await CertificateIssuer(client, PLAN, first).renew()
    read = client.get

    async def overtaken(path: str) -> bytes:
        if path.endswith("/other"):
            monkeypatch.undo()
            await server.put("secrets", secret("authorities"))
            await CertificateIssuer(client, PLAN, first + timedelta(hours=1)).renew()
        return await read(path)

    monkeypatch.setattr(client, "get", overtaken)
    with pytest.raises(RenewalError, match="authorities changed meanwhile"):
        await CertificateIssuer(client, PLAN, first + timedelta(hours=1)).renew()
    call_webhook(server, tmp_path)


def call_webhook(server: FakeApiServer, folder: Path) -> None:
    """Let the API server call a pod that has the Secret as it is now."""
    serving = context(server, "server", folder / "now", ssl.PROTOCOL_TLS_SERVER)
    serving.verify_mode = ssl.CERT_NONE
    shake_hands(serving, webhook_client(server), "server.ns.svc")


async def expire(server: FakeApiServer, now: datetime) -> None:
    """Replace the authorities by such as end in a year."""
    pairs = {name: Authority.create(name, now - timedelta(days=3300)).pair for name in NAMES}
    values = {f"{name}.crt": pair.certificate for name, pair in pairs.items()}
    values |= {f"{name}.key": pair.key for name, pair in pairs.items()}
    encoded = {key: b64encode(value).decode() for key, value in values.items()}
    await server.put("secrets", secret("authorities") | {"data": encoded})


def webhook_client(server: FakeApiServer) -> ssl.SSLContext:
    """The API server as it calls the webhook."""
    (bundle,) = trusted(server)
    return ssl.create_default_context(cadata=bundle.decode())


async def test_a_bundle_that_cannot_be_read_is_replaced(
    server: FakeApiServer, client: HttpKubeClient
) -> None:
    """Nothing of it is kept."""
    hook = server.find("mutatingwebhookconfigurations", "hook")
    hook["webhooks"][0]["clientConfig"]["caBundle"] = b64encode(b"no PEM").decode()
    await server.put("mutatingwebhookconfigurations", hook)
    await CertificateIssuer(client, PLAN, NOW).renew()
    assert trusted(server) == [data(server, "server")["ca.crt"]]


async def test_what_a_clock_ahead_issued_is_issued_again_by_the_right_time(
    server: FakeApiServer, client: HttpKubeClient
) -> None:
    """Nobody accepts certificates that are not valid yet, whoever signed them."""
    await CertificateIssuer(client, PLAN, NOW + timedelta(days=90)).renew()
    assert await CertificateIssuer(client, PLAN, NOW).renew() == 5
    assert await CertificateIssuer(client, PLAN, NOW).renew() == 0


def test_a_certificate_that_is_not_valid_yet_is_issued_again_by_its_own_authority() -> None:
    """The clock was ahead after the authority had been created."""
    authority = Authority.create("ca", NOW)
    request = CertificateRequest(("a",), valid_days=30)
    pair = authority.sign(request, NOW + timedelta(days=1))
    assert authority.renewal_reason(pair, request, NOW) == "it is not valid yet"
    assert authority.renewal_reason(pair, request, NOW + timedelta(days=1)) == ""


async def test_objects_that_are_missing_do_not_keep_the_others_from_renewal(
    server: FakeApiServer, client: HttpKubeClient
) -> None:
    """Each is attempted, also the webhook's bundle, and the error names all that failed."""
    absent = [server_plan(f"{name}=absent.ns.svc", 365) for name in ("gone", "lost")]
    hooks = (WebhookPlan("hook2", "server", ("x",)), *PLAN.webhooks)
    plan = Plan("ns", "authorities", (*absent, *PLAN.secrets), hooks)
    with pytest.raises(RenewalError, match=r"secrets/gone: 404.*secrets/lost: 404.*hook2: 404"):
        await CertificateIssuer(client, plan, NOW).renew()
    assert all(data(server, name) for name in NAMES)
    assert trusted(server) == [data(server, "server")["ca.crt"]]


async def test_a_webhook_keeps_its_bundle_while_its_secret_cannot_be_written(
    server: FakeApiServer, client: HttpKubeClient
) -> None:
    """The pods still serve the certificate that this bundle verifies; another is only added."""
    await CertificateIssuer(client, PLAN, NOW).renew()
    (before,) = trusted(server)
    await server.delete("secrets", "server", "ns")
    with pytest.raises(RenewalError, match="secrets/server"):
        await CertificateIssuer(client, PLAN, NOW + timedelta(days=3300)).renew()
    (after,) = trusted(server)
    assert before in after


def trusted(server: FakeApiServer) -> list[bytes]:
    """What the API server trusts when it calls the webhook."""
    found = server.find("mutatingwebhookconfigurations", "hook")["webhooks"]
    return [b64decode(one["clientConfig"]["caBundle"]) for one in found]


async def test_the_webhook_keeps_everything_but_its_bundle(
    server: FakeApiServer, client: HttpKubeClient
) -> None:
    """The rules of the chart stay; only the authority is added."""
    await CertificateIssuer(client, PLAN, NOW).renew()
    (hook,) = server.find("mutatingwebhookconfigurations", "hook")["webhooks"]
    assert trusted(server) == [data(server, "server")["ca.crt"]]
    assert hook["name"] == "pods.gpushare.io"
    assert hook["clientConfig"]["service"] == {"name": "server"}


async def test_a_configuration_that_changes_meanwhile_is_not_overwritten(
    server: FakeApiServer, client: HttpKubeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Helm may write it between the read and the patch, which would undo that."""
    read = client.get

    async def read_before_a_change(path: str) -> bytes:
        found = await read(path)
        if path.endswith("/hook"):
            changed = server.find("mutatingwebhookconfigurations", "hook")
            changed["webhooks"][0]["timeoutSeconds"] = 7
            await server.put("mutatingwebhookconfigurations", changed)
        return found

    monkeypatch.setattr(client, "get", read_before_a_change)
    with pytest.raises(RenewalError, match="hook"):
        await CertificateIssuer(client, PLAN, NOW).renew()
    (hook,) = server.find("mutatingwebhookconfigurations", "hook")["webhooks"]
    assert hook["timeoutSeconds"] == 7
    assert "caBundle" not in hook["clientConfig"]


async def test_a_run_before_the_configuration_was_changed_is_repeated(
    server: FakeApiServer, client: HttpKubeClient
) -> None:
    """Helm creates the Job before it adds a webhook, which would have no bundle for a day."""
    hooks = webhook_plan("hook@server=pods.gpushare.io,claims.pods.gpushare.io")
    plan = Plan("ns", "authorities", PLAN.secrets, (hooks,))
    with pytest.raises(RenewalError, match=r"hook has no webhook claims\.pods\.gpushare\.io"):
        await CertificateIssuer(client, plan, NOW).renew()
    found = server.find("mutatingwebhookconfigurations", "hook")
    added = {"name": "claims.pods.gpushare.io", "clientConfig": {"service": {"name": "server"}}}
    await server.put(
        "mutatingwebhookconfigurations", found | {"webhooks": [*found["webhooks"], added]}
    )
    await CertificateIssuer(client, plan, NOW).renew()
    assert trusted(server) == [data(server, "server")["ca.crt"]] * 2


@pytest.mark.parametrize(
    "names",
    ["renamed.ns.svc", "other.ns.svc,localhost", "other.ns.svc,localhost,127.0.0.1,new.ns.svc"],
    ids=["renamed", "fewer", "more"],
)
async def test_a_certificate_for_other_names_is_issued_again(
    client: HttpKubeClient, names: str
) -> None:
    """A release that was renamed does not keep the certificate of its old name."""
    await CertificateIssuer(client, PLAN, NOW).renew()
    renamed = server_plan(f"other={names}", 365)
    plan = Plan("ns", "authorities", (renamed,))
    assert await CertificateIssuer(client, plan, NOW).renew() == 1


@pytest.mark.parametrize("broken", ["tls.crt", "tls.key", "ca.crt"])
@pytest.mark.parametrize("value", [b"", b"no PEM"])
async def test_a_broken_secret_is_mended(
    server: FakeApiServer, client: HttpKubeClient, broken: str, value: bytes
) -> None:
    """Whatever stands in it, the next run makes a pair that works."""
    await CertificateIssuer(client, PLAN, NOW).renew()
    found = server.find("secrets", "other", "ns")
    changed = found["data"] | {broken: b64encode(value).decode()}
    await server.put("secrets", found | {"data": changed})
    assert await CertificateIssuer(client, PLAN, NOW).renew() == 1
    assert await CertificateIssuer(client, PLAN, NOW).renew() == 0


@pytest.mark.parametrize(("name", "key"), [("other", "tls.crt"), ("authorities", "other.crt")])
@pytest.mark.parametrize(
    "damage",
    [
        ("a003020102", "a003020126"),  # the version
        ("2a8648ce3d030107", "2a8648ce3d030163"),  # the curve of the public key
        ("03420004", "03420005"),  # its point
        (b"other-ca".hex(), b"\xffther-ca".hex()),  # the name of the authority: no UTF-8
    ],
)
async def test_a_damaged_certificate_is_replaced_and_keeps_no_other_from_renewal(
    server: FakeApiServer, client: HttpKubeClient, name: str, key: str, damage: tuple[str, str]
) -> None:
    """It is PEM, and a certificate at first sight."""
    await CertificateIssuer(client, PLAN, NOW).renew()
    found = server.find("secrets", name, "ns")
    text = ssl.PEM_cert_to_DER_cert(data(server, name)[key].decode()).hex()
    pem = ssl.DER_cert_to_PEM_cert(bytes.fromhex(text.replace(*damage)))
    changed = found["data"] | {key: b64encode(pem.encode()).decode()}
    await server.put("secrets", found | {"data": changed})
    await server.put("secrets", secret("client"))
    issued = 2 if name == "other" else 3
    assert await CertificateIssuer(client, PLAN, NOW).renew() == issued
    assert await CertificateIssuer(client, PLAN, NOW).renew() == 0


async def test_two_runs_at_once_leave_one_authority(
    server: FakeApiServer, client: HttpKubeClient
) -> None:
    """The later write is refused; what it would have signed is never stored."""
    runs = [CertificateIssuer(client, PLAN, NOW).renew() for _ in range(4)]
    ended = await asyncio.gather(*runs, return_exceptions=True)
    assert all(isinstance(each, int | ConflictError | RenewalError) for each in ended)
    await CertificateIssuer(client, PLAN, NOW).renew()
    assert data(server, "server")["ca.crt"] == data(server, "authorities")["server.crt"]
    assert data(server, "client")["ca.crt"] == data(server, "authorities")["server.crt"]


def test_certificates_last_as_long_as_the_chart_sets() -> None:
    """And an authority signs none for longer than it lives."""
    authority = Authority.create("ca", NOW)
    request = CertificateRequest(("a",), valid_days=30)
    pair = authority.sign(request, NOW)
    assert authority.renewal_reason(pair, request, NOW + timedelta(days=19)) == ""
    late = authority.renewal_reason(pair, request, NOW + timedelta(days=21))
    assert late == "it expires soon"


@pytest.mark.parametrize("text", ["", "a", "a=", "=b", "a@=b", "@a=b"])
def test_a_plan_that_cannot_be_read_is_refused(text: str) -> None:
    """With the text in the sentence."""
    with pytest.raises(PlanError, match="has not the form"):
        client_plan(text, 365)


async def test_the_command_fills_the_secrets(
    server: FakeApiServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As the Job of the chart calls it; a second call states that all are valid."""
    config = server.write_kubeconfig(tmp_path)
    arguments = [
        *("--kubeconfig", str(config), "--namespace", "ns", "--authorities", "authorities"),
        *("--server", "server=server.ns.svc", "--client", "client@server=scheduler"),
        *("--webhook", "hook@server=pods.gpushare.io"),
    ]
    assert await asyncio.to_thread(main, arguments) == 0
    assert await asyncio.to_thread(main, arguments) == 0
    output = capsys.readouterr().out
    assert "4 objects written" in output
    assert "all are valid" in output


def test_a_client_of_no_server_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    """Before anything is written."""
    arguments = ["--namespace", "ns", "--authorities", "a", "--client", "client@server=x"]
    assert main(arguments) == 1
    assert "no --server names the Secret server" in capsys.readouterr().err


async def test_a_missing_secret_ends_with_a_sentence(
    server: FakeApiServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The rights of the Job do not let it create one."""
    config = server.write_kubeconfig(tmp_path)
    arguments = [
        *("--kubeconfig", str(config), "--namespace", "ns", "--authorities", "authorities"),
        *("--server", "absent=absent.ns.svc"),
    ]
    assert await asyncio.to_thread(main, arguments) == 1
    assert "absent not found" in capsys.readouterr().err
