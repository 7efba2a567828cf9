"""The certificate of the metrics endpoint; see :mod:`gpukube.server.certificates`."""

import ssl
from pathlib import Path

from gpudeviceplugin.settings import DevicePluginSettings
from gpukube.server.certificates import CertificateWatcher


class MetricsCertificate:
    """The certificate that the endpoint shows; it requests none of its clients.

    Args:
        folder: with ``tls.crt`` and ``tls.key``.
        every: seconds between looks at the files.
    """

    def __init__(self, folder: Path, *, every: float = 10.0) -> None:
        self._watcher = CertificateWatcher(folder, every=every)
        self._known: tuple[int, ...] = ()

    async def context(self) -> ssl.SSLContext:
        """A context for the server, once there is a certificate that can be used."""
        context, self._known = await self._watcher.wait_for_context()
        return context

    async def follow(self, context: ssl.SSLContext) -> None:
        """Use each new certificate, until cancelled."""
        await self._watcher.follow(context, self._known)


def certificate_of(settings: DevicePluginSettings) -> MetricsCertificate | None:
    """The certificate that the settings name, if any."""
    folder = settings.tls_certificates
    return None if folder is None else MetricsCertificate(folder)
