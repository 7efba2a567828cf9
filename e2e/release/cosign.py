"""Signatures in the registry, made and verified by cosign, and the one of an identity.

With a key nothing is sent to a transparency log. With an identity, cosign gets a certificate for
the OpenID Connect token of the workflow that runs it and records the signature in the public log.
"""

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from host.commands import run_command
from host.progress import step
from release.version import is_loopback

BUNDLE: Final = ".sigstore.json"
_SIGN_SECONDS: Final = 300
_NO_PASSWORD: Final = {"COSIGN_PASSWORD": ""}
_NO_LOG: Final = ("--use-signing-config=false", "--tlog-upload=false")


@dataclass(frozen=True)
class Cosign:
    """How a release is signed in its registry.

    Attributes:
        program: the cosign command.
        key: unencrypted private key in PEM; None signs with the identity of the workflow.
    """

    program: Path
    key: Path | None = None

    def sign_pushed(self, pushed: Mapping[str, str]) -> None:
        """Sign everything that was pushed, by digest, and verify what a key signed.

        Args:
            pushed: digests, such as ``sha256:...``, by name with tag in the registry.

        Raises:
            SetupError: the registry refused a signature, or one does not verify.
        """
        with self._imported() as key:
            for name, digest in pushed.items():
                with step(f"sign {name}"):
                    self._sign(f"{name.rpartition(':')[0]}@{digest}", key)

    def sign_file(self, path: Path) -> Path | None:
        """Sign a file with the identity; its bundle, or None where a key signs."""
        if self.key is not None:
            return None
        bundle = path.with_name(path.name + BUNDLE)
        self._run("sign-blob", "--yes", "--bundle", bundle, path)
        return bundle

    def _sign(self, name: str, key: Path | None) -> None:
        plain = ["--allow-http-registry"] if is_loopback(name.partition("@")[0]) else []
        if key is None:
            self._run("sign", "--yes", *plain, name)
            return
        self._run("sign", "--yes", "--key", key.with_suffix(".key"), *_NO_LOG, *plain, name)
        public = key.with_suffix(".pub")
        self._run("verify", "--key", public, "--insecure-ignore-tlog", *plain, name)

    @contextmanager
    def _imported(self) -> Iterator[Path | None]:
        """The key as cosign reads it, without its suffix; None for an identity."""
        if self.key is None:
            yield None
            return
        with tempfile.TemporaryDirectory() as folder:
            prefix = Path(folder) / "release"
            self._run("import-key-pair", "--key", self.key, "--output-key-prefix", prefix)
            yield prefix

    def _run(self, *words: str | Path) -> None:
        run_command([self.program, *words], timeout_s=_SIGN_SECONDS, env=_NO_PASSWORD)
