"""A registry of OCI artefacts on loopback that keeps everything in memory."""

import hashlib
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit


class FakeRegistry(ThreadingHTTPServer):
    """Takes blobs in one piece and manifests by tag.

    Attributes:
        blobs: content by digest.
        manifests: content by `<repository>:<tag or digest>`.
    """

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Calls)
        self.blobs: dict[str, bytes] = {}
        self.manifests: dict[str, bytes] = {}

    @property
    def host(self) -> str:
        """Address and port."""
        return f"127.0.0.1:{self.server_address[1]}"


class _Calls(BaseHTTPRequestHandler):
    server: FakeRegistry

    def do_GET(self) -> None:
        repository, kind, key = self._split()
        if kind == "manifests":
            content = self.server.manifests.get(f"{repository}:{key}")
        else:
            content = self.server.blobs.get(key)
        digest = f"sha256:{hashlib.sha256(content or b'').hexdigest()}"
        self._answer(200 if content is not None else 404, content or b"", digest=digest)

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_POST(self) -> None:
        self._body()
        self._answer(202, location=f"{urlsplit(self.path).path}one")

    def do_PUT(self) -> None:
        repository, kind, key = self._split()
        content = self._body()
        digest = f"sha256:{hashlib.sha256(content).hexdigest()}"
        if kind == "manifests":
            self.server.manifests |= {f"{repository}:{name}": content for name in (key, digest)}
        else:
            assert parse_qs(urlsplit(self.path).query)["digest"] == [digest]
            self.server.blobs[digest] = content
        self._answer(201, location=self.path, digest=digest)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Print nothing."""

    def _split(self) -> tuple[str, str, str]:
        """Repository, `manifests` or `blobs`, and the last part of the path."""
        path = urlsplit(self.path).path.removeprefix("/v2/")
        for kind in ("manifests", "blobs"):
            repository, found, key = path.partition(f"/{kind}/")
            if found:
                return repository, kind, key
        return "", "", ""

    def _body(self) -> bytes:
        return self.rfile.read(int(self.headers.get("Content-Length", 0)))

    def _answer(
        self, status: int, content: bytes = b"", *, location: str = "", digest: str = ""
    ) -> None:
        self.send_response(status)
        for name, value in (("Location", location), ("Docker-Content-Digest", digest)):
            if value:
                self.send_header(name, value)
        self.send_header("Content-Type", "application/vnd.oci.image.manifest.v1+json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(content)
