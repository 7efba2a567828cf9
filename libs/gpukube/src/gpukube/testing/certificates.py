"""Self-signed certificates, as a mounted Secret would hold them."""

import subprocess
from pathlib import Path

EC = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1")
RSA = ("-newkey", "rsa:2048")


def make_certificate(folder: Path, name: str, key: tuple[str, ...] = EC) -> None:
    """Write ``tls.crt`` and ``tls.key`` for 127.0.0.1 into a folder, each in one step."""
    folder.mkdir(exist_ok=True)
    new = folder / "new"
    new.mkdir(exist_ok=True)
    subprocess.run(
        (
            *("openssl", "req", "-x509", *key, "-nodes", "-days", "1", "-subj", f"/CN={name}"),
            *("-addext", "subjectAltName=IP:127.0.0.1"),
            *("-keyout", str(new / "tls.key"), "-out", str(new / "tls.crt")),
        ),
        check=True,
        capture_output=True,
        timeout=60,
    )
    for file in ("tls.key", "tls.crt"):
        (new / file).rename(folder / file)
