"""A release from refusal to push, with an engine that is a script and a registry on loopback."""

import hashlib
import json
import subprocess
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from host.errors import SetupError
from release import __main__ as command
from release import publish, signature
from release.cosign import Cosign
from release.tests.fakeregistry import FakeRegistry
from release.version import clean_commit

BUILT = tuple(f"gpushare/{name}:abc" for name in ("extender", "deviceplugin", "inspect"))


def released(root: Path, registry: str = "", built: Sequence[str] = BUILT, **more: Any) -> Path:
    """Make release 0.2.0-rc.1 of a repository; the folder of its artefacts."""
    release = publish.Release(
        version="0.2.0-rc.1",
        commit=clean_commit(root),
        root=root,
        into=root / "dist",
        registry=registry,
        downloads="https://example.com/0.2.0",
        **more,
    )
    return publish.publish(release, built).parent


def sums(folder: Path) -> dict[str, str]:
    """Digest of each file that the list of checksums names."""
    lines = (folder / "SHA256SUMS").read_text().splitlines()
    return {name: digest for digest, name in (line.split("  ") for line in lines)}


@pytest.mark.slow
@pytest.mark.usefixtures("docker_calls")
def test_the_checksums_name_every_artefact(repository: Path) -> None:
    """`sha256sum --check` agrees, and no file is left out."""
    folder = released(repository)
    assert set(sums(folder)) == {
        *(f"images/{name}-0.2.0-rc.1.tar.gz" for name in ("extender", "deviceplugin", "inspect")),
        *(f"sbom/{name}.cdx.json" for name in ("extender", "deviceplugin", "inspect")),
        *(f"charts/{name}-0.2.0-rc.1.tgz" for name in publish.CHARTS),
        "cli/gpushare_cli-0.2.0rc1-py3-none-any.whl",
        "cli/requirements.txt",
        *(f"cli/gpushare-linux-{name}" for name in ("amd64", "arm64")),
        *(f"cli/gpushare-linux-{name}.tar.gz" for name in ("amd64", "arm64")),
        "cli/gpushare.yaml",
        "provenance.intoto.json",
        "release.json",
    }
    check = ["sha256sum", "--check", "--strict", "--quiet", "SHA256SUMS"]
    subprocess.run(check, cwd=folder, check=True)


@pytest.mark.slow
@pytest.mark.usefixtures("docker_calls")
def test_images_of_two_architectures_are_files_of_their_own(repository: Path) -> None:
    """The second has its architecture in the names of the archive and of its bill of materials."""
    both = ("gpushare/extender:abc", "gpushare/extender:def-arm64")
    names = set(sums(released(repository, built=both)))
    assert {
        "images/extender-0.2.0-rc.1.tar.gz",
        "images/extender-0.2.0-rc.1-arm64.tar.gz",
        "sbom/extender.cdx.json",
        "sbom/arm64/extender.cdx.json",
    } <= names


@pytest.mark.slow
@pytest.mark.usefixtures("docker_calls")
def test_a_release_that_is_made_again_has_the_same_checksums(repository: Path) -> None:
    """And nothing of an earlier one is left in its folder."""
    first = sums(released(repository))
    (repository / "dist" / "old.tgz").write_text("x")
    assert sums(released(repository)) == first


@pytest.mark.slow
@pytest.mark.usefixtures("docker_calls")
def test_the_wheels_have_the_version_of_the_release(repository: Path) -> None:
    """`gpushare version` prints it."""
    wheel = released(repository) / "cli" / "gpushare_cli-0.2.0rc1-py3-none-any.whl"
    with zipfile.ZipFile(wheel) as files:
        text = files.read("gpushare_cli-0.2.0rc1.dist-info/METADATA").decode()
    assert "Version: 0.2.0-rc.1\n" in text


@pytest.mark.slow
def test_without_a_registry_nothing_is_pushed(repository: Path, docker_calls: Path) -> None:
    """The engine gets no such call, and release.json names no registry."""
    folder = released(repository)
    assert "push" not in {line.split()[0] for line in docker_calls.read_text().splitlines()}
    assert json.loads((folder / "release.json").read_text())["pushed"] == {}


@pytest.mark.slow
def test_everything_is_built_before_anything_is_pushed(
    repository: Path, docker_calls: Path, registry: FakeRegistry
) -> None:
    """A release that fails half-way pushes nothing, and its names leave ours."""
    folder = released(repository, f"{registry.host}/team")
    calls = [line.split()[0] for line in docker_calls.read_text().splitlines()]
    assert "save" not in calls[calls.index("push") :]
    assert calls.count("push") == 3
    removed = f"image rm {registry.host}/team/gpushare/inspect:0.2.0-rc.1"
    assert removed in docker_calls.read_text()
    assert json.loads((folder / "release.json").read_text())["pushed"].keys() == {
        *(f"{registry.host}/team/{name.partition(':')[0]}:0.2.0-rc.1" for name in BUILT),
        *(f"{registry.host}/team/charts/{name}:0.2.0-rc.1" for name in publish.CHARTS),
    }


@pytest.mark.slow
@pytest.mark.usefixtures("docker_calls")
def test_the_registry_has_the_chart_of_the_folder(repository: Path, registry: FakeRegistry) -> None:
    """The digest in release.json is the manifest's, and its layer is the package."""
    folder = released(repository, registry.host)
    pushed = json.loads((folder / "release.json").read_text())["pushed"]
    manifest = registry.manifests["charts/gpushare:0.2.0-rc.1"]
    digest = f"sha256:{hashlib.sha256(manifest).hexdigest()}"
    assert pushed[f"{registry.host}/charts/gpushare:0.2.0-rc.1"] == digest
    (layer,) = json.loads(manifest)["layers"]
    package = folder / "charts" / "gpushare-0.2.0-rc.1.tgz"
    assert registry.blobs[layer["digest"]] == package.read_bytes()


@pytest.mark.slow
@pytest.mark.usefixtures("docker_calls")
def test_the_provenance_names_the_commit_and_every_digest(
    repository: Path, registry: FakeRegistry
) -> None:
    """Of files and of what was pushed, in the form that SLSA's tools read."""
    folder = released(repository, registry.host)
    statement = json.loads((folder / "provenance.intoto.json").read_text())
    assert statement["predicateType"] == "https://slsa.dev/provenance/v1"
    (source,) = statement["predicate"]["buildDefinition"]["resolvedDependencies"]
    assert source["digest"] == {"gitCommit": clean_commit(repository).id}
    subjects = {item["name"]: item["digest"]["sha256"] for item in statement["subject"]}
    pushed = json.loads((folder / "release.json").read_text())["pushed"]
    files = {name: digest for name, digest in sums(folder).items() if "provenance" not in name}
    assert subjects == files | {name: text.split(":")[1] for name, text in pushed.items()}


def key_files(folder: Path) -> tuple[Path, Path]:
    """A new private key and its public one."""
    key = ec.generate_private_key(ec.SECP256R1())
    private, public = folder / "key.pem", folder / "public.pem"
    private.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    form = serialization.PublicFormat.SubjectPublicKeyInfo
    public.write_bytes(key.public_key().public_bytes(serialization.Encoding.PEM, form))
    return private, public


@pytest.mark.slow
@pytest.mark.usefixtures("docker_calls")
def test_a_key_signs_the_list_of_checksums(repository: Path, tmp_path: Path) -> None:
    """The command of the page verifies it, and refuses a list of which one byte differs."""
    private, public = key_files(tmp_path)
    folder = released(repository, key=signature.read_key(private))
    script = (
        "openssl base64 -d -in SHA256SUMS.sig -out SHA256SUMS.der && "
        f"openssl dgst -sha256 -verify {public} -signature SHA256SUMS.der SHA256SUMS"
    )
    verified = subprocess.run(["bash", "-c", script], cwd=folder, capture_output=True, check=True)
    assert verified.stdout == b"Verified OK\n"
    with (folder / "SHA256SUMS").open("a") as file:
        file.write(" ")
    changed = subprocess.run(["bash", "-c", script], cwd=folder, capture_output=True, check=False)
    assert changed.returncode == 1


def fake_cosign(folder: Path) -> tuple[Path, Path]:
    """A program that writes each call as one line, and the file of the calls."""
    program, calls = folder / "cosign", folder / "cosign-calls"
    program.write_text(f'#!/bin/sh\necho "$*" >> {calls}\n')
    program.chmod(0o755)
    return program, calls


@pytest.mark.slow
@pytest.mark.usefixtures("docker_calls")
@pytest.mark.parametrize("with_key", [True, False])
def test_everything_that_was_pushed_is_signed_by_digest(
    repository: Path, registry: FakeRegistry, tmp_path: Path, with_key: bool
) -> None:
    """A key signs without a transparency log and is verified; an identity signs the list too."""
    program, calls = fake_cosign(tmp_path)
    private, _ = key_files(tmp_path)
    cosign = Cosign(program, private if with_key else None)
    folder = released(repository, registry.host, cosign=cosign)
    pushed = json.loads((folder / "release.json").read_text())["pushed"]
    wanted = {f"{name.rpartition(':')[0]}@{digest}" for name, digest in pushed.items()}
    lines = [line.split() for line in calls.read_text().splitlines()]
    signed = [line for line in lines if line[0] == "sign"]
    assert {line[-1] for line in signed} == wanted
    assert all(("--tlog-upload=false" in line) == with_key for line in signed)
    assert {line[-1] for line in lines if line[0] == "verify"} == (wanted if with_key else set())
    blobs = [line[-1] for line in lines if line[0] == "sign-blob"]
    assert blobs == ([] if with_key else [str(folder / "SHA256SUMS")])


@pytest.mark.slow
@pytest.mark.usefixtures("docker_calls")
def test_a_registry_that_refuses_leaves_no_checksums(
    repository: Path, registry: FakeRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The charts, which name the images, are not pushed either."""
    monkeypatch.setenv("FAKE_DOCKER_REFUSES", "1")
    with pytest.raises(SetupError, match="denied"):
        released(repository, registry.host)
    assert registry.manifests == {}
    assert not (repository / "dist" / "SHA256SUMS").exists()


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--version=1"], "is no semantic version"),
        (["--version=1.2.3", "--registry=gpushare"], "is no registry"),
        (["--version=1.2.3", "--key=mine.pem"], "mine.pem is not an unencrypted private key"),
        (["--version=1.2.3", "--key=k", "--identity=1"], "exclude each other"),
        (["--version=1.2.3"], "differs from its commit in new.txt"),
    ],
)
def test_a_refused_release_does_not_touch_the_engine(
    repository: Path,
    docker_calls: Path,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    sentence: str,
) -> None:
    """One sentence on standard error, exit status 1, and artefacts of an earlier release stay."""
    (repository / "dist").mkdir()
    (repository / "new.txt").write_text("x")
    assert command.main([f"--root={repository}", *arguments]) == 1
    assert sentence in capsys.readouterr().err
    assert docker_calls.read_text() == ""
    assert (repository / "dist").exists()
