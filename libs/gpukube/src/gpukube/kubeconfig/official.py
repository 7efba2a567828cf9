"""Kubeconfig files that the official client reads: credential plugins, several files, passwords.

Only this module and :mod:`gpukube.kubeconfig.credentials` import the official client, when there is
such a file: the import takes longer than everything else at start. Its blocking loader is used, in
a thread, because the asyncio variant takes half as long again to import. Its models are not used:
decoding them costs twenty times what the narrow decoders of ``gpucore.wire`` cost.
"""

import os
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic
from typing import Any

import msgspec
import yaml

from gpukube.config import TOKEN_SECONDS, Impersonation
from gpukube.errors import ConfigError, UnreachableError


class KubeconfigFile:
    """A configuration of the official client, which renews credentials that expire."""

    def __init__(self, configuration: Any, impersonation: Impersonation) -> None:
        self._configuration = configuration
        self.impersonation = impersonation
        self.host: str = configuration.host
        self.tls = _context(configuration) if self.host.startswith("https:") else None
        file = configuration.cert_file
        self.certificate = Path(file).read_bytes() if file else b""
        self.server_name: str | None = configuration.tls_server_name or None
        self.proxy: str | None = configuration.proxy
        self._text, self._read = self._token(), monotonic()

    @property
    def due(self) -> bool:
        """The official client renews a token minutes before it expires: once in a while will do."""
        return monotonic() - self._read >= TOKEN_SECONDS

    def authorization(self) -> str:
        """The bearer token; certificates are in TLS."""
        if self.due:
            self._read = monotonic()  # other requests go on with the old token meanwhile
            try:
                with _readable():
                    self._text = self._token()
            except ConfigError as error:  # a program that runs already tries again
                raise UnreachableError(str(error)) from error
        return self._text

    def _token(self) -> str:
        """The current token; may run a credential plugin."""
        return self._configuration.get_api_key_with_prefix("BearerToken") or ""


def read(kubeconfig: Path, context: str = "") -> KubeconfigFile:
    """Read a kubeconfig file, or several in one path with colons between them.

    Args:
        kubeconfig: the file.
        context: name of the context; empty for the current one.

    Raises:
        ConfigError: the file cannot be read or is not a kubeconfig.
    """
    from kubernetes import client  # noqa: PLC0415 - see the top

    from gpukube.kubeconfig import credentials  # noqa: PLC0415 - it imports the official client

    configuration = client.Configuration()
    configuration.proxy = None  # the environment's is looked up by gpukube.client
    with _readable():
        merged, chosen = _merged(kubeconfig, context)
        _check_server(merged, chosen)
        reader: Any = credentials.CredentialLoader
        reader(merged, chosen, config_base_path=None).load_and_set(configuration)
        return KubeconfigFile(configuration, _impersonation(merged, chosen))


def namespace(kubeconfig: Path, context: str = "") -> str:
    """Namespace of a context; empty where it names none.

    Raises:
        ConfigError: the file cannot be read or is not a kubeconfig.
    """
    with _readable():
        merged, chosen = _merged(kubeconfig, context)
        found = merged["contexts"].get_with_name(chosen)["context"]
        return str(found.safe_get("namespace") or "")


def _merged(kubeconfig: Path, context: str) -> tuple[Any, str]:
    """All files as one node of the official loader, and the name of the context.

    As for kubectl, the first file that has a name or a current context wins; the official merger
    takes the last current context. A file that is not there is passed over. The names of the nodes
    appear in errors, so unlike those of the official merger they contain no values.
    """
    from kubernetes.config import kube_config  # noqa: PLC0415 - see the top

    node: Any = kube_config.ConfigNode
    current, found = "", 0
    entries: dict[str, dict[str, Any]] = {"contexts": {}, "clusters": {}, "users": {}}
    for path in filter(os.path.exists, str(kubeconfig).split(os.pathsep)):
        with Path(path).open("rb") as stream:  # errors in a stream quote no line
            document = yaml.safe_load(stream) or {}
        found += 1
        current = current or str(document.get("current-context") or "")
        for kind, named in entries.items():
            for entry in document.get(kind) or ():
                name = entry["name"]
                named.setdefault(name, node(f"{path}/{kind}/{name}", entry, path))
    if not found:
        raise ConfigError(f"no usable kubeconfig: {kubeconfig} does not exist")
    if not (context or current):
        raise ConfigError(f"no usable kubeconfig: {kubeconfig} has no current-context")
    lists = {kind: list(named.values()) for kind, named in entries.items()}
    return node("kubeconfig", lists, None), context or current


def _check_server(merged: Any, context: str) -> None:
    """The loader fails without a name where the address of the API server is no text."""
    name = merged["contexts"].get_with_name(context)["context"]["cluster"]
    server = merged["clusters"].get_with_name(name)["cluster"].safe_get("server")
    if not isinstance(server, str | None):
        raise ConfigError(f"no usable kubeconfig: cluster {name}: server is {server}, not a URL")


def _impersonation(merged: Any, context: str) -> Impersonation:
    """Whom the user of a context impersonates; a user that is named has to exist."""
    name = merged["contexts"].get_with_name(context)["context"].safe_get("user")
    if not name:
        return Impersonation()
    user = merged["users"].get_with_name(name)["user"].value
    found = msgspec.convert(user, Impersonation)
    if not all(value.isascii() and value.isprintable() for _, value in found.headers()):
        raise ConfigError(f"no usable kubeconfig: user {name}: 'as' takes printable ASCII")
    return found


@contextmanager
def _readable() -> Iterator[None]:
    """Turn every error of the loader for YAML that is no kubeconfig into ConfigError."""
    from kubernetes.config import ConfigException  # noqa: PLC0415 - see the top

    damaged = (TypeError, AttributeError, KeyError, ValueError)
    try:
        yield
    except (ConfigException, yaml.YAMLError, OSError, *damaged) as error:
        raise ConfigError(f"no usable kubeconfig: {error}") from error


def _context(configuration: Any) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=configuration.ssl_ca_cert)
    if configuration.cert_file:
        context.load_cert_chain(configuration.cert_file, configuration.key_file)
    if not configuration.verify_ssl:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context
