"""A certificate authority, and the certificates that it signs for servers and clients.

Keys are ECDSA on P-256. Every certificate is limited to one use (server or client), so that the key
of a server does not authenticate a client.
"""

from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from typing import Final, Self

import msgspec
from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

AUTHORITY_VALID: Final = timedelta(days=3650)
CLOCK_SKEW: Final = timedelta(minutes=5)
"""Certificates are valid from a little earlier, for machines whose clocks are behind."""

RENEW_SHARE: Final = 1 / 3
"""A certificate is renewed when less than this share of its validity is left."""

_UNREADABLE: Final = (ValueError, TypeError, UnsupportedAlgorithm, x509.InvalidVersion)
"""What the library raises for a damaged certificate or key, some of it when a part is read."""


class CertificateAndKey(msgspec.Struct, frozen=True):
    """A certificate and its private key, both in PEM."""

    certificate: bytes
    key: bytes


class CertificateRequest(msgspec.Struct, frozen=True):
    """What a certificate is for.

    Attributes:
        names: DNS names or IP addresses; the first is the common name.
        client: authenticates a client instead of a server.
        valid_days: how long it is valid.
    """

    names: tuple[str, ...]
    client: bool = False
    valid_days: int = 365


class Authority:
    """An authority that signs certificates.

    Args:
        pair: its certificate and key.

    Raises:
        ValueError: they cannot be read, or do not belong together.
    """

    def __init__(self, pair: CertificateAndKey) -> None:
        self.pair = pair
        self._certificate, key, together = _parsed(pair)
        if not isinstance(key, ec.EllipticCurvePrivateKey):
            raise ValueError("the key of the authority is no ECDSA key")  # noqa: TRY004 - of a file
        if not together:
            raise ValueError("certificate and key of the authority do not belong together")
        self._key = key

    @classmethod
    def create(cls, name: str, now: datetime) -> Self:
        """A new self-signed authority that is valid for ten years."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = _common_name(name)
        builder = _builder(subject, subject, key.public_key(), now, AUTHORITY_VALID)
        usage = _key_usage(signs_certificates=True)
        identifier = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
        certificate = (
            builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(usage, critical=True)
            .add_extension(identifier, critical=False)
            .sign(key, hashes.SHA256())
        )
        return cls(_pair(certificate, key))

    def usable(self, now: datetime) -> bool:
        """Whether it may sign: it is valid already, and for a year and a third of one from now.

        One that is valid later was created by a machine whose clock was ahead.
        """
        left = self._certificate.not_valid_after_utc - now
        return left >= AUTHORITY_VALID * (2 / 15) and not _valid_later(self._certificate, now)

    def sign(self, request: CertificateRequest, now: datetime) -> CertificateAndKey:
        """A new key, and a certificate of this authority for it."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = _common_name(request.names[0])
        valid = timedelta(days=request.valid_days)
        builder = _builder(subject, self._certificate.subject, key.public_key(), now, valid)
        signer = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        names = x509.SubjectAlternativeName([_general_name(name) for name in request.names])
        use = ExtendedKeyUsageOID.CLIENT_AUTH if request.client else ExtendedKeyUsageOID.SERVER_AUTH
        certificate = (
            builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_key_usage(signs_certificates=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage([use]), critical=False)
            .add_extension(names, critical=False)
            .add_extension(signer, critical=False)
            .sign(self._key, hashes.SHA256())
        )
        return _pair(certificate, key)

    def renewal_reason(
        self, pair: CertificateAndKey, request: CertificateRequest, now: datetime
    ) -> str:
        """Why a certificate has to be issued again; empty where it is still good.

        Args:
            pair: as found, which may be empty or broken.
        """
        try:
            certificate, _, together = _parsed(pair)
        except ValueError:
            return "there is none, or it cannot be read"
        if not together:
            return "certificate and key do not belong together"
        if not self._signed(certificate):
            return "another authority signed it"
        if _names_of(certificate) != frozenset(request.names):
            return "it is for other names"
        return _reason_by_time(certificate, now)

    def _signed(self, certificate: x509.Certificate) -> bool:
        try:
            certificate.verify_directly_issued_by(self._certificate)
        except (InvalidSignature, *_UNREADABLE):
            return False
        return True


def issued_since(pair: CertificateAndKey, now: datetime) -> timedelta:
    """The time since a certificate of :meth:`Authority.sign` was issued."""
    certificate = x509.load_pem_x509_certificate(pair.certificate)
    return now - (certificate.not_valid_before_utc + CLOCK_SKEW)


def with_authorities_of(bundle: bytes, other: bytes) -> bytes:
    """A CA bundle in PEM, and after it the certificates of another one, which may be broken."""
    try:
        found = x509.load_pem_x509_certificates(other)
    except _UNREADABLE:
        return bundle
    texts = [each.public_bytes(Encoding.PEM) for each in found]
    return bundle + b"".join(text for text in texts if text != bundle)


def _parsed(pair: CertificateAndKey) -> tuple[x509.Certificate, PrivateKeyTypes, bool]:
    """Certificate and key as found, and whether they belong together.

    Raises:
        ValueError: there is none, or one cannot be read.
    """
    try:
        certificate = x509.load_pem_x509_certificate(pair.certificate)
        key = load_pem_private_key(pair.key, None)
        _ = certificate.subject  # parts are read when they are used: this one to sign
        together = key.public_key() == certificate.public_key()
    except _UNREADABLE as error:
        raise ValueError(f"certificate or key cannot be read: {error}") from error
    return certificate, key, together


def _reason_by_time(certificate: x509.Certificate, now: datetime) -> str:
    if _valid_later(certificate, now):
        return "it is not valid yet"
    valid = certificate.not_valid_after_utc - certificate.not_valid_before_utc
    if certificate.not_valid_after_utc - now < valid * RENEW_SHARE:
        return "it expires soon"
    return ""


def _valid_later(certificate: x509.Certificate, now: datetime) -> bool:
    return certificate.not_valid_before_utc > now


def _common_name(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name[:64])])


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePublicKey,
    now: datetime,
    valid: timedelta,
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now.astimezone(UTC) - CLOCK_SKEW)
        .not_valid_after(now.astimezone(UTC) + valid)
    )


def _key_usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _general_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _names_of(certificate: x509.Certificate) -> frozenset[str]:
    try:
        found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    except x509.ExtensionNotFound:
        return frozenset()
    return frozenset(str(name.value) for name in found.value)


def _pair(certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> CertificateAndKey:
    text = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return CertificateAndKey(certificate.public_bytes(Encoding.PEM), text)
