"""A release in a real registry: what is pushed can be pulled, and has the digests of its index.

Debian's docker-registry runs as a process, and the engine has the images. Minutes, so on demand:
`make e2e MARK=ondemand CASES=e2e/release`.
"""

import hashlib
import json
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

import offline
from cluster import engine
from environments import registry
from host import docker
from host.errors import SetupError
from host.testing.lacking import lacking
from images import build
from release import publish
from release.cosign import Cosign
from release.imagefiles import SERVICES
from release.version import Commit

pytestmark = [pytest.mark.e2e, pytest.mark.ondemand, pytest.mark.timeout(600)]
ROOT = Path(__file__).resolve().parents[3]
VERSION = "0.2.0-rc.1"
INDEX = (
    "application/vnd.oci.image.manifest.v1+json, "
    "application/vnd.docker.distribution.manifest.v2+json, "
    "application/vnd.oci.image.index.v1+json"
)

_PULL = r"""
import json, re, sys
import helm_python as helm

registry, version, folder = sys.argv[1:]
name = f"oci://{registry}/charts/gpushare"
helm.pull(name, version=version, destination=folder, plain_http=True)
values = {"image": {"registry": registry}, "dashboard": {"enabled": True}}
with open(f"{folder}/gpushare-{version}.tgz", "rb") as package:
    with helm.Chart.load_archive(package.read()) as chart:
        text = "\n".join(chart.render(values, name="gpushare", namespace="gpushare").values())
found = re.findall(r"^\s*(?:- )?image: (\S+)", text, re.MULTILINE)
print(json.dumps(sorted({image for image in found if "kube-scheduler" not in image})))
"""


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """An empty registry; its address."""
    try:
        engine.ensure()
        with registry.running(tmp_path_factory.mktemp("registry")) as address:
            yield address
    except SetupError as reason:
        lacking("no registry", reason)


@pytest.fixture(scope="module")
def cosign() -> Path:
    """The program, from its Go module."""
    try:
        return offline.ensure_cosign()
    except SetupError as reason:
        lacking("no cosign", reason)


def private_key(folder: Path) -> Path:
    """A new key, made by the commands of docs/releasing.md; release.pub is beside it."""
    script = (
        "openssl ecparam -name prime256v1 -genkey -noout"
        " | openssl pkcs8 -topk8 -nocrypt -out release.key"
        " && openssl ec -in release.key -pubout -out release.pub"
    )
    subprocess.run(["bash", "-c", script], cwd=folder, check=True, capture_output=True)
    return folder / "release.key"


@pytest.fixture(scope="module")
def key(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The key of the release."""
    return private_key(tmp_path_factory.mktemp("key"))


@pytest.fixture(scope="module")
def pushed(
    host: str, cosign: Path, key: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, dict[str, str]]:
    """The artefacts of a release of this commit, and the digests by name."""
    built = build.ensure()
    release = publish.Release(
        version=VERSION,
        commit=Commit(id="0" * 40, epoch=build.EPOCH),
        root=ROOT,
        into=tmp_path_factory.mktemp("dist"),
        registry=f"{host}/team",
        cosign=Cosign(cosign, key),
    )
    folder = publish.publish(release, [getattr(built, name) for name in SERVICES]).parent
    found: dict[str, str] = json.loads((folder / "release.json").read_text())["pushed"]
    return folder, found


def test_the_registry_has_every_digest_of_the_release(
    host: str, pushed: tuple[Path, dict[str, str]]
) -> None:
    """The manifest under each tag has the digest, and so has every blob that it names."""
    _, digests = pushed
    assert len(digests) == len(SERVICES) + len(publish.CHARTS)
    for name, digest in digests.items():
        repository, _, tag = name.removeprefix(f"{host}/").rpartition(":")
        manifest = _get(host, f"{repository}/manifests/{tag}")
        assert _sha256(manifest) == digest
        parts = json.loads(manifest)
        for blob in (parts["config"], *parts["layers"]):
            assert _sha256(_get(host, f"{repository}/blobs/{blob['digest']}")) == blob["digest"]


def test_an_install_from_the_registry_finds_its_images_there(
    host: str, pushed: tuple[Path, dict[str, str]], tmp_path: Path
) -> None:
    """The chart as `helm install oci://` gets it names images that can be pulled by digest."""
    folder, digests = pushed
    # Helm's library brings a Go runtime into its process, which must not fork then.
    command = [sys.executable, "-c", _PULL, f"{host}/team", VERSION, str(tmp_path)]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    chart = f"gpushare-{VERSION}.tgz"
    assert (tmp_path / chart).read_bytes() == (folder / "charts" / chart).read_bytes()
    images = set(json.loads(done.stdout))
    assert images == {name for name in digests if "/charts/" not in name}
    for name in images:
        by_digest = f"{name.rpartition(':')[0]}@{digests[name]}"
        subprocess.run(["docker", "pull", "--quiet", by_digest], check=True, timeout=120)
        docker.remove([by_digest])


def test_cosign_verifies_everything_with_the_public_key_and_with_no_other(
    host: str, cosign: Path, key: Path, pushed: tuple[Path, dict[str, str]], tmp_path: Path
) -> None:
    """The command of docs/releasing.md, for every image and chart, by digest."""
    _, digests = pushed
    assert all(name.startswith(host) for name in digests)
    public = key.with_suffix(".pub")
    for name, digest in digests.items():
        assert _verified(cosign, public, f"{name.rpartition(':')[0]}@{digest}")
    other = private_key(tmp_path).with_suffix(".pub")
    name, digest = next(iter(digests.items()))
    assert not _verified(cosign, other, f"{name.rpartition(':')[0]}@{digest}")


def _verified(cosign: Path, public: Path, name: str) -> bool:
    options = ["--insecure-ignore-tlog", "--allow-http-registry"]
    command: list[str | Path] = [cosign, "verify", "--key", public, *options, name]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=120)
    return done.returncode == 0


def _get(host: str, path: str) -> bytes:
    request = urllib.request.Request(f"http://{host}/v2/{path}", headers={"Accept": INDEX})
    with urllib.request.urlopen(request, timeout=60) as reply:
        content: bytes = reply.read()
    return content


def _sha256(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"
