"""The way to the API server that only the official client can read: the one file that knows it.

Loaded where it is needed and not before. Its models are not used: decoding them costs twenty times
what the narrow decoders of ``gpucore.wire`` do.
"""

import ssl
from pathlib import Path

import yaml
from kubernetes.aio import config
from kubernetes.aio.client import Configuration
from kubernetes.aio.client.rest import RESTClientObject
from kubernetes.aio.config import ConfigException

from gpuextender.kubeerrors import AccessError


class OfficialAccess:
    """What a configuration of the client says, renewed as it knows how."""

    def __init__(self, configuration: Configuration) -> None:
        self._configuration = configuration
        self.host = configuration.host.rstrip("/")
        self.tls: ssl.SSLContext | None = RESTClientObject(configuration).ssl_context
        self.proxy: str | None = configuration.proxy

    async def authorization(self) -> str:
        """The bearer token; certificates are in TLS."""
        found = (await self._configuration.auth_settings()).get("BearerToken")
        return str(found["value"]) if found else ""


async def load(kubeconfig: Path) -> OfficialAccess:
    """The way that a kubeconfig file says.

    Raises:
        AccessError: it cannot be read.
    """
    configuration = Configuration()
    try:
        await config.load_kube_config(  # type: ignore[no-untyped-call]
            config_file=str(kubeconfig), client_configuration=configuration, persist_config=False
        )
    except (ConfigException, yaml.YAMLError, OSError) as error:
        raise AccessError(str(error)) from error
    return OfficialAccess(configuration)
