"""A release that could not be repeated or installed is refused with one sentence."""

from pathlib import Path

import pytest

from host.errors import SetupError
from release import version
from release.tests import smallrepository


@pytest.mark.parametrize("text", ["0.1.0", "10.20.30", "1.0.0-rc.1", "1.0.0-alpha.0"])
def test_semantic_versions_are_released(text: str) -> None:
    """Pre-releases that Python's wheels can name too."""
    assert version.semantic_version(text) == text


@pytest.mark.parametrize(
    "text",
    ["", "1", "1.2", "v1.2.3", "01.2.3", "1.2.3+b", "1.2.3-x", "1.2.3\n", "1.2.3;id", "../1"],
)
def test_another_text_is_refused_with_an_example(text: str) -> None:
    """It becomes a tag, a file name and a line of Chart.yaml."""
    with pytest.raises(SetupError, match=r"is no semantic version: give one such as 0\.2\.0"):
        version.semantic_version(text)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("registry.example.com", "registry.example.com"),
        ("registry.example.com:5000/a/b-c/", "registry.example.com:5000/a/b-c"),
        ("localhost", "localhost"),
        ("127.0.0.1:5000/team", "127.0.0.1:5000/team"),
    ],
)
def test_a_registry_is_a_host_with_a_path(text: str, found: str) -> None:
    assert version.registry_path(text) == found


@pytest.mark.parametrize(
    "text", ["gpushare", "library/x", "https://r.example.com", "r.example.com/A", "/", "-x.y/z y"]
)
def test_an_account_of_docker_hub_or_an_address_is_refused(text: str) -> None:
    """Docker would push a name without a host to Docker Hub."""
    with pytest.raises(SetupError, match="give a host with an optional path"):
        version.registry_path(text)


def test_only_a_registry_of_this_machine_is_reached_without_tls() -> None:
    """A host whose name begins like a loopback address is another machine."""
    assert version.is_loopback("127.0.0.1:5000/a")
    assert version.is_loopback("localhost/a")
    assert not version.is_loopback("127.0.0.1.example.com/a")
    assert not version.is_loopback("localhost.example.com:5000")


def test_a_commit_gives_its_time(repository: Path) -> None:
    found = version.clean_commit(repository)
    assert found.epoch == smallrepository.EPOCH
    assert len(found.id) == 40


@pytest.mark.parametrize("name", ["helm/gpushare/Chart.yaml", "helm/gpushare/templates/new.yaml"])
def test_a_changed_or_new_file_is_refused_by_name(repository: Path, name: str) -> None:
    """What is in no commit cannot be built again."""
    (repository / name).write_text("x")
    with pytest.raises(SetupError, match=f"differs from its commit in {name}: commit or remove"):
        version.clean_commit(repository)
