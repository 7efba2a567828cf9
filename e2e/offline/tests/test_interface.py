"""`python -m offline` builds one part, and the package shows the functions that it promises."""

import platform
from pathlib import Path

import pytest

import offline
from host.architecture import Architecture
from host.errors import SetupError
from host.testing.fakeprograms import FakePrograms
from offline import __main__ as command
from offline import nodebuild, pythonimage


def test_every_promised_name_is_there() -> None:
    """Other packages import these and nothing behind them."""
    assert [name for name in offline.__all__ if not hasattr(offline, name)] == []


@pytest.mark.parametrize("version", [offline.NEWEST, offline.OLDEST])
def test_a_built_image_is_named_by_version_and_content(version: str) -> None:
    """The tag has the Kubernetes version and a key, and is never an official name."""
    name = offline.node_image_name(version)
    assert name == f"gpushare/kind-node:v{version}-{nodebuild.key(version)}"
    assert name != offline.node_image_name(next(iter({offline.NEWEST, offline.OLDEST} - {version})))


def test_the_base_image_has_another_name_when_its_dockerfile_differs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What is installed is part of the key."""
    before = offline.base_image_name()
    monkeypatch.setattr(pythonimage, "_PACKAGES", "python3")
    assert offline.base_image_name() != before


def test_the_base_image_of_another_architecture_has_a_name_of_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Both may be in one engine."""
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    other = offline.base_image_name(Architecture("arm64", "aarch64"))
    assert other.startswith("gpushare/python-base:bookworm-arm64-")
    assert other != offline.base_image_name()


@pytest.mark.usefixtures("cache")
def test_a_part_that_is_there_is_named_on_standard_output(
    programs: FakePrograms, capsys: pytest.CaptureFixture[str]
) -> None:
    """An image that the engine holds is not built again."""
    programs.add("docker", "exit 0")
    assert command.main(["base-image"]) == 0
    assert capsys.readouterr().out == f"{offline.base_image_name()}\n"
    assert programs.calls() == [f"docker image inspect {offline.base_image_name()}"]


def test_what_is_missing_is_one_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Status 1, and standard output stays empty."""

    def lacking() -> Path:
        raise SetupError("no compiler")

    part = {"kind": ("the kind program", lacking)}
    monkeypatch.setattr(command, "_PARTS", part)
    assert command.main(["kind"]) == 1
    out, err = capsys.readouterr()
    assert (out, err) == ("", "offline: error: no compiler\n")
