"""Reads when a certificate expires from its file, so that an alert can fire before.

The standard library reports the expiry only of a peer's certificate, never of a local one. Nothing
is verified here. The import takes 0.2 s and 10 MiB: it waits for the first certificate, so that the
first lists are requested before.
"""


class ExpiryError(ValueError):
    """The file has no readable certificate."""


def not_after(pem: str) -> float:
    """Unix seconds at which the first certificate of ``pem``, the listener's own, ends.

    Raises:
        ExpiryError: there is none, or it is cut off.
    """
    from cryptography import x509  # noqa: PLC0415 - see the top

    try:
        return x509.load_pem_x509_certificate(pem.encode()).not_valid_after_utc.timestamp()
    except ValueError as error:
        raise ExpiryError(f"not a certificate: {error}") from error
