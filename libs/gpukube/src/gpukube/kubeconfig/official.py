"""Kubeconfig files that the official client reads: credential plugins, several files, passwords.

Only this module imports the official client, when there is such a file: the import takes longer
than everything else at start. Its blocking loader is used, in a thread, because the asyncio variant
takes half as long again to import. Its models are not used: decoding them costs twenty times what
the narrow decoders of ``gpucore.wire`` cost.
"""

import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic
from typing import Any

import yaml

from gpukube.config import TOKEN_SECONDS
from gpukube.errors import ConfigError


class KubeconfigFile:
    """A configuration of the official client, which renews credentials that expire."""

    def __init__(self, configuration: Any) -> None:
        self._configuration = configuration
        self.host: str = configuration.host.rstrip("/")
        self.tls = _context(configuration) if self.host.startswith("https:") else None
        self.server_name: str | None = configuration.tls_server_name
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
            self._text = self._token()
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

    loader = official_loader()
    configuration = client.Configuration()
    configuration.proxy = None  # the environment's is looked up by gpukube.client
    with _readable(loader):
        loader.load_kube_config(
            config_file=str(kubeconfig),
            context=context or None,
            client_configuration=configuration,
            persist_config=False,
        )
        return KubeconfigFile(configuration)


def namespace(kubeconfig: Path, context: str = "") -> str:
    """Namespace of a context; empty where it names none.

    Raises:
        ConfigError: the file cannot be read or is not a kubeconfig.
    """
    loader = official_loader()
    with _readable(loader):
        contexts, current = loader.list_kube_config_contexts(config_file=str(kubeconfig))
    named = [each for each in contexts if each["name"] == context]
    chosen = named[0] if named else current
    return str(chosen.get("context", {}).get("namespace") or "")


def official_loader() -> Any:
    """The configuration module of the official client, which has no types."""
    from kubernetes import config  # noqa: PLC0415 - see the top

    return config


@contextmanager
def _readable(loader: Any) -> Iterator[None]:
    """Turn every error of the loader for YAML that is no kubeconfig into ConfigError."""
    damaged = (TypeError, AttributeError, KeyError, ValueError)
    try:
        yield
    except (loader.ConfigException, yaml.YAMLError, OSError, *damaged) as error:
        raise ConfigError(f"no usable kubeconfig: {error}") from error


def _context(configuration: Any) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=configuration.ssl_ca_cert)
    if configuration.cert_file:
        context.load_cert_chain(configuration.cert_file, configuration.key_file)
    if not configuration.verify_ssl:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context
