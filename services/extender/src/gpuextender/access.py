"""Where the API server is, and who this process is to it.

A pod's service account is read here. A kubeconfig, with whatever it may hold, is for the official
client, which is loaded only then: that takes longer than all of the rest.
"""

import os
import ssl
from collections.abc import Mapping
from pathlib import Path
from time import monotonic
from typing import Final, Protocol

from gpuextender.kubeerrors import AccessError

MOUNTED: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
TOKEN_SECONDS: Final = 60.0
"""A token's file is read again after so long: kubelet replaces it before the token ends."""


class Access(Protocol):
    """A way to the API server.

    Attributes:
        host: URL without a slash at its end.
        tls: where it is https.
        proxy: URL that its configuration names, if any.
    """

    host: str
    tls: ssl.SSLContext | None
    proxy: str | None

    async def authorization(self) -> str:
        """Value of the header of that name for the next request; empty for none."""
        ...


class TokenAccess:
    """An address and a bearer token.

    Args:
        token: the file that holds it.
    """

    def __init__(self, host: str, tls: ssl.SSLContext | None, token: Path) -> None:
        self.host, self.tls = host.rstrip("/"), tls
        self.proxy: str | None = None
        self._token = token
        self._text, self._read = "", float("-inf")

    async def authorization(self) -> str:
        """The token as it is now; where its file cannot be read, as it was."""
        if monotonic() - self._read >= TOKEN_SECONDS:
            self._text = self._now()
            self._read = monotonic()
        return f"Bearer {self._text}" if self._text else ""

    def _now(self) -> str:
        try:
            return self._token.read_text().strip() or self._text
        except OSError:
            return self._text


async def find(kubeconfig: Path | None) -> Access:
    """The way that a kubeconfig file says, or the pod's service account where there is none.

    Raises:
        AccessError: neither says where the API server is.
    """
    if kubeconfig is None:
        return service_account(os.environ, MOUNTED)
    from gpuextender.officialaccess import load  # noqa: PLC0415 - see above

    return await load(kubeconfig)


def service_account(environ: Mapping[str, str], folder: Path) -> Access:
    """The way of a process in a pod.

    Args:
        environ: says host and port.
        folder: where kubelet mounts ``token`` and ``ca.crt``.

    Raises:
        AccessError: this is no pod, or it has no service account.
    """
    host, port = environ.get("KUBERNETES_SERVICE_HOST"), environ.get("KUBERNETES_SERVICE_PORT")
    if not host or not port:
        raise AccessError("this is no pod, and no kubeconfig is given")
    token = folder / "token"
    if not token.is_file():
        raise AccessError(f"no service account: {token} is not there")
    try:
        tls = ssl.create_default_context(cafile=folder / "ca.crt")
    except OSError as error:
        raise AccessError(f"no service account: {folder / 'ca.crt'}: {error}") from error
    name = f"[{host}]" if ":" in host else host
    return TokenAccess(f"https://{name}:{port}", tls, token)
