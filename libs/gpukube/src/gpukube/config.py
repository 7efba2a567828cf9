"""Client configuration: the address of the API server and the credentials of this process.

The service account of a pod is read here, a kubeconfig file by :mod:`gpukube.kubeconfig`.
"""

import ssl
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from time import monotonic
from typing import Final, Protocol
from urllib.parse import quote

import msgspec

from gpukube.errors import ConfigError, UnreachableError

MOUNTED: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
TOKEN_SECONDS: Final = 60.0
"""Seconds between reads of the token file; kubelet replaces it before the token expires."""
_IMPERSONATION: Final = {
    "user": "as",
    "uid": "as-uid",
    "groups": "as-groups",
    "extra": "as-user-extra",
}


class Impersonation(msgspec.Struct, frozen=True, rename=_IMPERSONATION):
    """Whom the user of a kubeconfig impersonates; without a user nobody, as for kubectl."""

    user: str | None = None
    uid: str | None = None
    groups: list[str] | None = None
    extra: dict[str, list[str] | None] | None = None

    def headers(self, as_user: str = "") -> list[tuple[str, str]]:
        """Headers of every request; groups and extra fields repeat theirs.

        Args:
            as_user: user of the command line, which goes first; empty for none.
        """
        user = as_user or self.user
        if not user:
            return []
        found = [("Impersonate-User", user)]
        found += [("Impersonate-Uid", self.uid)] if self.uid else []
        found += [("Impersonate-Group", group) for group in self.groups or ()]
        for key, values in (self.extra or {}).items():
            name = "Impersonate-Extra-" + quote(key, safe="!#$&'*+-.^_`|~")
            found += [(name, value) for value in values or ()]
        return found


class ClientConfig(Protocol):
    """How to reach and authenticate to an API server.

    Attributes:
        host: URL without a slash at its end.
        tls: for an https host.
        certificate: that of the client in ``tls``, by which a renewed one is noticed.
        server_name: name in the certificate of the server where it is not that of the host.
        proxy: URL of the proxy that the configuration names, if any.
        impersonation: whom its user impersonates.
    """

    host: str
    tls: ssl.SSLContext | None
    certificate: bytes
    server_name: str | None
    proxy: str | None
    impersonation: Impersonation

    def authorization(self) -> str:
        """Value of the Authorization header for the next request; empty for none.

        It may read a file or run a credential plugin, if :attr:`due` is true.

        Raises:
            UnreachableError: the credentials cannot be renewed.
        """
        ...

    @property
    def due(self) -> bool:
        """The credentials have to be read again, which may take a while."""
        ...


class TokenConfig:
    """An address and a bearer token.

    Args:
        token: the file that holds it.
        authority: the CA bundle of ``tls``, which new connections trust once it has changed.
    """

    def __init__(
        self, host: str, tls: ssl.SSLContext | None, token: Path, authority: Path | None = None
    ) -> None:
        self.host, self.tls = host, tls
        self.server_name: str | None = None
        self.proxy: str | None = None
        self.impersonation = Impersonation()
        self._token, self._authority = token, authority
        self._text, self._read, self._bundle = "", float("-inf"), b""

    due = False  # files in memory are read at once
    certificate = b""

    def authorization(self) -> str:
        """The current token; the last one read while its file is missing or empty.

        Raises:
            UnreachableError: the file holds something else.
        """
        if monotonic() - self._read >= TOKEN_SECONDS:
            self._text = self._now()
            self._trust()
            self._read = monotonic()
        return f"Bearer {self._text}" if self._text else ""

    def _now(self) -> str:
        try:
            text = self._token.read_text(errors="replace").strip()
        except OSError:
            return self._text
        if not (text.isascii() and text.isprintable()):
            raise UnreachableError(f"{self._token}: an HTTP header cannot carry the token")
        return text or self._text

    def _trust(self) -> None:
        """Trust a changed CA bundle as well; of one that cannot be read, the last one stays."""
        if self.tls is None or self._authority is None:
            return
        with suppress(OSError):
            bundle = self._authority.read_bytes()
            if bundle != self._bundle:
                self.tls.load_verify_locations(self._authority)
                self._bundle = bundle


def in_cluster(environ: Mapping[str, str], folder: Path) -> ClientConfig:
    """The configuration of a process in a pod.

    Args:
        environ: with KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT.
        folder: where kubelet mounts ``token`` and ``ca.crt``.

    Raises:
        ConfigError: this process does not run in a pod, or the pod has no service account.
    """
    host, port = environ.get("KUBERNETES_SERVICE_HOST"), environ.get("KUBERNETES_SERVICE_PORT")
    if not host or not port:
        raise ConfigError("not running in a pod, and no kubeconfig is given")
    token = folder / "token"
    if not token.is_file():
        raise ConfigError(f"no service account: {token} does not exist")
    try:
        tls = ssl.create_default_context(cafile=folder / "ca.crt")
    except OSError as error:
        raise ConfigError(f"no service account: {folder / 'ca.crt'}: {error}") from error
    name = f"[{host}]" if ":" in host else host
    return TokenConfig(f"https://{name}:{port}", tls, token, folder / "ca.crt")
