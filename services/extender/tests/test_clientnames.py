"""Which client certificates may call the verbs, by the names in them."""

import asyncio
from datetime import UTC, datetime
from typing import Any

import pytest
import structlog

from gpuextender import metrics
from gpuextender.http.server import ClientNames, names_of

CERTIFICATE = {
    "subject": ((("organizationName", "team"),), (("commonName", "scheduler"),)),
    "subjectAltName": (("DNS", "one.example"), ("IP Address", "10.0.0.1"), ("URI", "spiffe://x")),
    "issuer": ((("commonName", "authority"),),),
    "notAfter": "Nov 28 12:00:00 2027 GMT",
}


class FakeGate:
    """Knows one connection and the certificate that was shown on it."""

    def __init__(self, certificate: Any) -> None:
        self.certificate = certificate

    def transport_info(self, peer: Any, name: str) -> Any:
        assert (peer, name) == (("10.0.0.9", 1234), "peercert")
        return self.certificate


def call(certificate: Any, *names: str) -> tuple[bool, list[Any]]:
    """Whether the request reached the application behind, and what was answered before it."""
    reached: list[Any] = []
    sent: list[Any] = []

    async def behind(scope: Any, receive: Any, send: Any) -> None:
        reached.append(scope)

    async def receive() -> Any:
        raise AssertionError("nothing is read of a request that is refused")

    async def send(message: Any) -> None:
        sent.append(message)

    gate: Any = FakeGate(certificate)
    scope = {"type": "http", "client": ("10.0.0.9", 1234)}
    asyncio.run(ClientNames(behind, gate, names)(scope, receive, send))
    return bool(reached), sent


def test_names_are_the_common_name_and_dns_names() -> None:
    """Neither the authority nor the organisation, an address or a URI counts."""
    assert list(names_of(CERTIFICATE)) == ["scheduler", "one.example"]
    assert list(names_of(None)) == list(names_of({})) == []


@pytest.mark.parametrize("name", ["scheduler", "one.example"])
def test_one_name_of_several_is_enough(name: str) -> None:
    """The request goes on unchanged."""
    assert call(CERTIFICATE, "other", name) == (True, [])


def test_the_end_of_a_permitted_clients_certificate_is_a_metric() -> None:
    """kube-scheduler holds a copy of its certificate, which only the extender sees in use."""
    call(CERTIFICATE, "scheduler", "one.example")
    ends = metrics.CLIENT_CERTIFICATE_EXPIRY.labels("one.example")._value.get()
    assert datetime.fromtimestamp(ends, UTC) == datetime(2027, 11, 28, 12, tzinfo=UTC)


@pytest.mark.parametrize("name", ["team", "authority", "10.0.0.1", "spiffe://x", "Scheduler", ""])
def test_other_clients_of_the_authority_are_refused(name: str) -> None:
    """With 403 and the name that was shown; the connection ends."""
    with structlog.testing.capture_logs() as logs:
        reached, (start, body) = call(CERTIFICATE, name)
    assert not reached
    assert start["status"] == 403
    head = {key.decode(): value.decode() for key, value in start["headers"]}
    text = "client certificate of one.example, scheduler: not among tls-client-names"
    assert body["body"].decode() == text
    assert head == {
        "content-type": "text/plain; charset=utf-8",
        "content-length": str(len(text)),
        "connection": "close",
    }
    assert [(line["names"], line["client"]) for line in logs] == [
        ("one.example, scheduler", "10.0.0.9")
    ]


def test_a_client_without_a_certificate_is_refused() -> None:
    """TLS should have refused it before."""
    reached, (start, body) = call(None, "scheduler")
    assert (reached, start["status"]) == (False, 403)
    assert b"of no name" in body["body"]
