"""Certificates of a listener, whose end is a metric; see :mod:`gpukube.certificates`."""

import structlog

from gpuextender import metrics
from gpuextender.expiry import ExpiryError, not_after
from gpukube.certificates import CertificateWatcher

log = structlog.get_logger(__name__)


class Certificates(CertificateWatcher):
    """A watcher that publishes when the certificate ends."""

    def loaded(self) -> None:
        """Set the metric; a certificate that cannot be read leaves it as it is."""
        certificate, _ = self.chain
        try:
            ends = not_after(certificate.read_text())
        except (ExpiryError, OSError) as error:
            log.warning("no date in the certificate", folder=str(self.folder), error=str(error))
            return
        metrics.CERTIFICATE_EXPIRY.labels(str(self.folder)).set(ends)
