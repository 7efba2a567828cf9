"""Kubeconfig files, read by the official client: the only module that imports it.

Imported lazily by :mod:`gpukube.config`. The models of the official client are not used: decoding
them costs twenty times what the narrow decoders of ``gpucore.wire`` cost.
"""

import ssl
from pathlib import Path

import yaml
from kubernetes.aio import config
from kubernetes.aio.client import Configuration
from kubernetes.aio.client.rest import RESTClientObject
from kubernetes.aio.config import ConfigException

from gpukube.errors import ConfigError


class KubeconfigFile:
    """A configuration of the official client, which renews credentials that expire."""

    def __init__(self, configuration: Configuration) -> None:
        self._configuration = configuration
        self.host = configuration.host.rstrip("/")
        self.tls: ssl.SSLContext | None = RESTClientObject(configuration).ssl_context
        self.proxy: str | None = configuration.proxy

    async def authorization(self) -> str:
        """The bearer token; certificates are in TLS."""
        found = (await self._configuration.auth_settings()).get("BearerToken")
        return str(found["value"]) if found else ""


async def read(kubeconfig: Path) -> KubeconfigFile:
    """Read a kubeconfig file.

    Raises:
        ConfigError: the file cannot be read or is not a kubeconfig.
    """
    configuration = Configuration()
    try:
        await config.load_kube_config(  # type: ignore[no-untyped-call]
            config_file=str(kubeconfig), client_configuration=configuration, persist_config=False
        )
    except (ConfigException, yaml.YAMLError, OSError) as error:
        raise ConfigError(str(error)) from error
    return KubeconfigFile(configuration)
