"""The signature of the list of checksums, which names every artefact and every pushed digest.

ECDSA on P-256 over SHA-256, in base64: `openssl dgst` and `cosign verify-blob` verify it.
"""

import base64
from pathlib import Path
from typing import Final

from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from host.errors import SetupError

SUFFIX: Final = ".sig"
_WANTED: Final = "an unencrypted private key on the curve P-256 in PEM"


def read_key(path: Path) -> ec.EllipticCurvePrivateKey:
    """The key of a file; SetupError with the reason where it cannot sign."""
    try:
        key = serialization.load_pem_private_key(path.read_bytes(), password=None)
    except (OSError, ValueError, TypeError) as error:
        raise SetupError(f"KEY={path} is not {_WANTED}: {error}") from error
    if not isinstance(key, ec.EllipticCurvePrivateKey) or not isinstance(key.curve, ec.SECP256R1):
        raise SetupError(f"KEY={path} is not {_WANTED}: it is of another kind")
    return key


def sign(path: Path, key: ec.EllipticCurvePrivateKey) -> Path:
    """Write the signature of a file beside it; its path."""
    signature = key.sign(path.read_bytes(), ec.ECDSA(hashes.SHA256()))
    target = path.with_name(path.name + SUFFIX)
    target.write_bytes(base64.b64encode(signature) + b"\n")
    return target
