"""Which configuration a program uses, and kubeconfig files, which the official client reads.

Only this module imports the official client, when there is a file to read: the import takes longer
than everything else at start. Its blocking loader is used, in a thread, because the asyncio variant
takes half as long again to import. Its models are not used: decoding them costs twenty times what
the narrow decoders of ``gpucore.wire`` cost.
"""

import asyncio
import os
import ssl
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from time import monotonic
from typing import Any, Final

import yaml

from gpukube.config import MOUNTED, TOKEN_SECONDS, ClientConfig, in_cluster
from gpukube.errors import ConfigError

DEFAULT_NAMESPACE: Final = "default"


def configuration(kubeconfig: Path | None, context: str = "") -> ClientConfig:
    """Read a kubeconfig file, or the service account of this pod without one.

    Args:
        kubeconfig: the file.
        context: name of a context in it; empty for the current one.

    Raises:
        ConfigError: neither names an API server.
    """
    if kubeconfig is None:
        return in_cluster(os.environ, MOUNTED)
    return read(kubeconfig, context)


async def load(kubeconfig: Path | None, context: str = "") -> ClientConfig:
    """The same, without blocking the event loop for the time that a credential plugin takes."""
    return await asyncio.to_thread(configuration, kubeconfig, context)


def found_by_kubectl(kubeconfig: Path | None, context: str = "") -> Path | None:
    """The kubeconfig that kubectl would use; None for the service account of this pod.

    Args:
        kubeconfig: that the user names, if any.
        context: that the user names, if any; only a kubeconfig has contexts.
    """
    default = Path.home() / ".kube" / "config"
    named = os.environ.get("KUBECONFIG")
    inside = "KUBERNETES_SERVICE_HOST" in os.environ
    if kubeconfig is None and inside and not context and not named and not default.exists():
        return None
    return kubeconfig or Path(named or default)


def default_namespace(kubeconfig: Path | None, context: str = "") -> str:
    """The namespace that kubectl would use: of the context, else of this pod, else ``default``.

    Args:
        kubeconfig: that the user names, if any.
        context: that the user names, if any.
    """
    path = found_by_kubectl(kubeconfig, context)
    with suppress(ConfigError):
        if path is not None:
            return namespace(path, context) or DEFAULT_NAMESPACE
    inside = "KUBERNETES_SERVICE_HOST" in os.environ
    own = MOUNTED / "namespace"
    return own.read_text().strip() if inside and own.is_file() else DEFAULT_NAMESPACE


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
        """May run a credential plugin."""
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
    """What the loader raises for a file that is YAML but no kubeconfig, as one error."""
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
