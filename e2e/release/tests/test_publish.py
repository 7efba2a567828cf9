"""A release from refusal to push, with an engine that is a script and a registry on loopback."""

import hashlib
import json
import subprocess
import zipfile
from pathlib import Path

import pytest

from host.errors import SetupError
from release import __main__ as command
from release import publish
from release.tests.fakeregistry import FakeRegistry
from release.version import clean_commit

BUILT = tuple(f"gpushare/{name}:abc" for name in ("extender", "deviceplugin", "inspect"))


def released(root: Path, registry: str = "") -> Path:
    """Make release 0.2.0-rc.1 of a repository; the folder of its artefacts."""
    release = publish.Release(
        version="0.2.0-rc.1",
        commit=clean_commit(root),
        root=root,
        into=root / "dist",
        registry=registry,
        downloads="https://example.com/0.2.0",
    )
    return publish.publish(release, BUILT).parent


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
        "release.json",
    }
    check = ["sha256sum", "--check", "--strict", "--quiet", "SHA256SUMS"]
    subprocess.run(check, cwd=folder, check=True)


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
        (["--version=1.2.3", "--key=mine.pem"], "not signed"),
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
