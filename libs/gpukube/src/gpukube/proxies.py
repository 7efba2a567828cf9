"""The proxy on the way to an API server: that of the kubeconfig, else that of the environment.

The rules are those of Go's package httpproxy, so a program takes the same way as kubectl.
"""

import base64
import os
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import Final, NamedTuple
from urllib.parse import SplitResult, unquote, urlsplit

from gpukube.errors import ConfigError

_PORTS: Final = {"http": "80", "https": "443"}


class Proxy(NamedTuple):
    """A proxy.

    Attributes:
        url: without user and password.
        authorization: value of the Proxy-Authorization header; empty for none.
    """

    url: str
    authorization: str = ""


def proxy_for(host: str, named: str | None) -> Proxy | None:
    """The proxy for the API server at ``host``; None for a direct connection.

    It is looked up once, because aiohttp would look it up for every request in a thread, which
    takes longer than the rest of the request.

    Args:
        named: ``proxy-url`` of the kubeconfig, if any; exceptions are for the environment's only.

    Raises:
        ConfigError: the proxy has no URL, or one that is not of http or https.
    """
    if named:
        return _proxy(named, "proxy-url of the kubeconfig")
    parts = urlsplit(host)
    name = f"{parts.scheme.upper()}_PROXY"
    found = _variable(name)
    if not found or _exempt(parts):
        return None
    return _proxy(found if "://" in found else f"http://{found}", name)


def _proxy(url: str, source: str) -> Proxy:
    """The proxy of a URL; errors do not quote it, because it may have a password."""
    try:
        parts = urlsplit(url)
        valid = bool(parts.hostname) and parts.port != 0
    except ValueError:
        raise ConfigError(f"{source} is not a URL") from None
    if parts.scheme not in _PORTS:
        raise ConfigError(
            f"{source}: a proxy of scheme {parts.scheme!r} is not supported, only http and https"
        )
    if not valid:
        raise ConfigError(f"{source} names no host")
    credentials, _, address = parts.netloc.rpartition("@")
    if not credentials:
        return Proxy(f"{parts.scheme}://{address}")
    pair = f"{unquote(parts.username or '')}:{unquote(parts.password or '')}"
    encoded = base64.b64encode(pair.encode()).decode()
    return Proxy(f"{parts.scheme}://{address}", f"Basic {encoded}")


def _variable(name: str) -> str:
    """A variable of the environment; capitals go first, as in Go."""
    return os.environ.get(name) or os.environ.get(name.lower()) or ""


def _exempt(parts: SplitResult) -> bool:
    """Loopback addresses, and what NO_PROXY names, get a direct connection."""
    host = parts.hostname or ""
    address = _address(host)
    if host == "localhost" or (address is not None and address.is_loopback):
        return True
    port = str(parts.port or "") or _PORTS.get(parts.scheme, "")
    entries = [entry.strip().lower() for entry in _variable("NO_PROXY").split(",")]
    return any(_covers(entry, host, address, port) for entry in entries if entry)


def _covers(entry: str, host: str, address: IPv4Address | IPv6Address | None, port: str) -> bool:
    """An entry of NO_PROXY covers a host: ``*``, a CIDR, an address, or a domain; with a port."""
    if entry == "*":
        return True
    if "/" in entry:
        return address is not None and _within(entry, address)
    name, only = entry, ""
    if entry.count(":") == 1 or "]:" in entry:
        name, _, only = entry.rpartition(":")
        name = name.strip("[]")
    if only and only != port:
        return False
    exempt = _address(name)
    if exempt is not None:
        return exempt == address
    domain = name[1:] if name.startswith("*.") else name
    return bool(domain) and (host.endswith("." + domain.removeprefix(".")) or host == domain)


def _within(network: str, address: IPv4Address | IPv6Address) -> bool:
    try:
        return address in ip_network(network, strict=False)
    except ValueError:
        return False


def _address(text: str) -> IPv4Address | IPv6Address | None:
    try:
        return ip_address(text)
    except ValueError:
        return None
