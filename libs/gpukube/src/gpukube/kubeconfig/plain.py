"""Kubeconfig files with an address and a token or a certificate, as most clusters write them.

Everything else is left to the official client: several files, credential plugins, token files,
passwords, fields that are unknown here, and files that cannot be read, for which it has the words.
Importing it takes three times as long as all other imports of a command together.
"""

import base64
import os
import ssl
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any, TypeVar

import msgspec

from gpukube.config import Impersonation

T = TypeVar("T")


class _Context(msgspec.Struct):
    cluster: str
    user: str = ""
    namespace: str = ""


class _NamedContext(msgspec.Struct):
    name: str
    context: _Context


class _NamedCluster(msgspec.Struct):
    name: str
    cluster: dict[str, Any]


class _NamedUser(msgspec.Struct):
    name: str
    user: dict[str, Any]


class _File(msgspec.Struct, rename="kebab"):
    contexts: list[_NamedContext]
    clusters: list[_NamedCluster]
    users: list[_NamedUser]
    current_context: str = ""

    def context(self, name: str) -> _Context:
        """The context of this name, or the current one.

        Raises:
            LookupError: there is none, or more than one.
        """
        wanted = name or self.current_context
        return _only(each.context for each in self.contexts if each.name == wanted)


class _Cluster(msgspec.Struct, forbid_unknown_fields=True, rename="kebab"):
    server: str
    certificate_authority: str = ""
    certificate_authority_data: str = ""
    insecure_skip_tls_verify: bool = False
    tls_server_name: str | None = None
    proxy_url: str | None = None
    disable_compression: bool = False
    extensions: Any = None


class _User(msgspec.Struct, forbid_unknown_fields=True, rename="kebab"):
    token: str = ""
    client_certificate: str = ""
    client_certificate_data: str = ""
    client_key: str = ""
    client_key_data: str = ""


class PlainKubeconfig:
    """Address and credentials that do not expire while a program runs."""

    due = False
    impersonation = Impersonation()

    def __init__(self, cluster: _Cluster, user: _User, folder: Path) -> None:
        self.host = cluster.server.rstrip("/")
        self.certificate = b""
        self.tls: ssl.SSLContext | None = None
        if self.host.startswith("https:"):
            self.certificate, self.tls = _secured(cluster, user, folder)
        self.server_name = cluster.tls_server_name or None
        self.proxy = cluster.proxy_url
        self._text = f"Bearer {user.token}" if user.token else ""

    def authorization(self) -> str:
        """The bearer token; certificates are in TLS."""
        return self._text


def read(kubeconfig: Path, context: str = "") -> PlainKubeconfig | None:
    """Settings of the file; None where the official client has to read it.

    Args:
        kubeconfig: the file.
        context: name of the context; empty for the current one.
    """
    try:
        file = _file(kubeconfig)
        chosen = file.context(context)
        cluster = _only(each.cluster for each in file.clusters if each.name == chosen.cluster)
        user = _only(each.user for each in file.users if each.name == chosen.user)
        found = msgspec.convert(cluster, _Cluster), msgspec.convert(user, _User)
        if not found[0].server.startswith(("http://", "https://")):
            return None
        if not (found[1].token.isascii() and found[1].token.isprintable()):
            return None
        return PlainKubeconfig(*found, kubeconfig.absolute().parent)
    except (OSError, ValueError, LookupError):
        return None


def namespace(kubeconfig: Path, context: str = "") -> str | None:
    """Namespace of a context, empty where it names none; None as :func:`read`."""
    try:
        return _file(kubeconfig).context(context).namespace
    except (OSError, ValueError, LookupError):
        return None


def _file(path: Path) -> _File:
    if os.pathsep in str(path):
        raise LookupError(path)
    return msgspec.convert(_document(path.read_bytes()), _File)


def _document(text: bytes) -> Any:
    """JSON or YAML. Raises ValueError."""
    with suppress(ValueError):
        return msgspec.json.decode(text)
    import yaml  # noqa: PLC0415 - 1.6 MiB, which JSON does not need

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # the first is ten times as quick
    try:
        return yaml.load(text, loader)  # noqa: S506 - a safe one
    except yaml.YAMLError as error:
        raise ValueError(str(error)) from error


def _only(found: Iterable[T]) -> T:
    """The one value; no file should have several entries of one name."""
    values = list(found)
    if len(values) != 1:
        raise LookupError(values)
    return values[0]


def _secured(cluster: _Cluster, user: _User, folder: Path) -> tuple[bytes, ssl.SSLContext]:
    """The client's certificate; as :func:`ssl.create_default_context`, with the file's pair."""
    context = _verifying(cluster, folder)
    certificate = _bytes(user.client_certificate, user.client_certificate_data, folder)
    key = _bytes(user.client_key, user.client_key_data, folder)
    if certificate or key:
        with NamedTemporaryFile(prefix="kubeconfig-") as pair:  # its owner alone may read it
            pair.write(certificate + b"\n" + key)
            pair.flush()
            context.load_cert_chain(pair.name)
    return certificate, context


def _verifying(cluster: _Cluster, folder: Path) -> ssl.SSLContext:
    """The CA bundle that verifies the server's certificate; by default that of the system."""
    authority = _bytes(cluster.certificate_authority, cluster.certificate_authority_data, folder)
    if not cluster.insecure_skip_tls_verify:
        return ssl.create_default_context(cadata=authority.decode() if authority else None)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # reads no authorities, which takes 20 ms
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def _bytes(path: str, data: str, folder: Path) -> bytes:
    """The data, else the content of the file; as for kubectl, data go first."""
    return base64.b64decode(data) if data else (folder / path).read_bytes() if path else b""
