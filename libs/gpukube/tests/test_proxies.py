"""The proxy on the way to the API server is the one that kubectl would use."""

import ssl
from pathlib import Path

import pytest
from recordingserver import recording

from gpukube.blocking import BlockingClient
from gpukube.client import HttpKubeClient
from gpukube.config import Impersonation, TokenConfig
from gpukube.errors import ConfigError, UnreachableError
from gpukube.proxies import Proxy, proxy_for


def found(host: str, folder: Path, proxy: str) -> TokenConfig:
    """A configuration with a proxy."""
    config = TokenConfig(host, None, folder / "none")
    config.proxy = proxy
    return config


@pytest.mark.parametrize(
    ("host", "exempt"),
    [
        ("https://10.96.0.1:443", True),
        ("https://192.168.1.5:6443", True),
        ("https://192.169.1.5:6443", False),
        ("https://[fd00::7]:6443", True),
        ("https://[fe80::7]:6443", False),
        ("https://203.0.113.5", True),
        ("https://203.0.113.50", False),
        ("https://203.0.113.6:6443", True),
        ("https://203.0.113.6", False),
        ("https://[2001:db8::1]:6443", True),
        ("https://kubernetes.default.svc", True),
        ("https://svc", False),
        ("https://example.com", True),
        ("https://api.example.com:6443", True),
        ("https://notexample.com", False),
        ("https://API.Other.Example", True),
        ("https://other.example", False),
        ("https://port.example", True),
        ("https://port.example:6443", False),
        ("http://plain.example", True),
        ("https://plain.example", False),
        ("https://rooted.test.", False),
    ],
)
def test_no_proxy_is_read_as_by_go(
    monkeypatch: pytest.MonkeyPatch, host: str, exempt: bool
) -> None:
    """CIDRs, addresses and domains with and without a port; a dot at the start means subdomains.

    A port alone exempts no host.
    """
    entries = (
        "10.0.0.0/8, 192.168.3.4/16,fd00::/8,no/cidr,203.0.113.5,203.0.113.6:6443,"
        "[2001:db8::1]:6443,.svc,Example.com,*.other.example,port.example:443,plain.example:80,:443,"
    )
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy:3128")
    monkeypatch.setenv("HTTP_PROXY", "http://proxy:3128")
    monkeypatch.setenv("NO_PROXY", entries)
    assert (proxy_for(host, None) is None) is exempt
    monkeypatch.setenv("NO_PROXY", "*")
    assert proxy_for(host, None) is None


@pytest.mark.parametrize(
    "host",
    ["https://127.0.0.1:6443", "https://127.9.9.9", "https://[::1]:6443", "http://localhost"],
)
def test_loopback_has_no_proxy_of_the_environment(
    monkeypatch: pytest.MonkeyPatch, host: str
) -> None:
    """Only a ``proxy-url`` of the kubeconfig counts there."""
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy:3128")
    monkeypatch.setenv("HTTP_PROXY", "http://proxy:3128")
    assert proxy_for(host, None) is None
    assert proxy_for(host, "http://proxy:3128") == Proxy("http://proxy:3128")


def test_a_proxy_without_a_scheme_speaks_http(monkeypatch: pytest.MonkeyPatch) -> None:
    """Capitals go first, and the scheme of the server decides which variable counts."""
    monkeypatch.setenv("HTTPS_PROXY", "us%65r:p%40ss@proxy:3128")
    monkeypatch.setenv("https_proxy", "http://lower:3128")
    assert proxy_for("https://api", None) == Proxy("http://proxy:3128", "Basic dXNlcjpwQHNz")
    assert proxy_for("http://api", None) is None
    monkeypatch.delenv("HTTPS_PROXY")
    assert proxy_for("https://api", None) == Proxy("http://lower:3128")


@pytest.mark.parametrize(
    "url",
    [
        "socks5://u:secret@proxy:1080",
        "u:secret@proxy",
        "http://",
        "http://u:secret@p:port",
        "http://u:secret@p:0",
    ],
)
def test_a_proxy_that_is_not_supported_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, url: str
) -> None:
    """From both clients, and without the password."""
    config = found("https://api", tmp_path, url)
    with pytest.raises(ConfigError, match="proxy-url of the kubeconfig") as failed:
        BlockingClient(config, {}, 1)
    assert "secret" not in str(failed.value)
    with pytest.raises(ConfigError, match="proxy-url of the kubeconfig"):
        HttpKubeClient(config, None, user_agent="t")
    monkeypatch.setenv("HTTPS_PROXY", "socks5://proxy:1080")
    with pytest.raises(ConfigError, match="HTTPS_PROXY: a proxy of scheme 'socks5'"):
        proxy_for("https://api", None)


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["http", "https"])
async def test_the_proxys_password_is_sent(tmp_path: Path, scheme: str) -> None:
    """By both clients, with a tunnel and without one, and never printed."""
    expected = [("proxy-authorization", "Basic dTpzZWNyZXQ=")]
    with recording() as proxy:
        config = found(f"{scheme}://192.0.2.1", tmp_path, f"http://u:secret@127.0.0.1:{proxy.port}")
        config.tls = ssl.create_default_context() if scheme == "https" else None
        tunnel = pytest.raises(UnreachableError, match="502")
        with BlockingClient(config, {}, 60) as client:
            if scheme == "http":
                client.get("/api")
            else:
                with tunnel as failed:
                    client.get("/api")
                assert "secret" not in str(failed.value)
        assert proxy.headers("proxy-auth") == expected
        proxy.seen.clear()
        async with HttpKubeClient(config, None, user_agent="t") as api:
            if scheme == "http":
                await api.get("/api")
            else:
                with tunnel as failed:
                    await api.get("/api")
                assert "secret" not in str(failed.value)
        assert proxy.headers("proxy-auth") == expected


def test_groups_do_not_become_one_on_the_way_through_a_proxy(tmp_path: Path) -> None:
    """Without TLS the blocking client cannot repeat a header there, and refuses it."""
    config = found("http://api", tmp_path, "http://proxy:1")
    config.impersonation = Impersonation("viewer", None, ["one", "two"])
    with pytest.raises(ConfigError, match="several groups"):
        BlockingClient(config, {}, 1)
