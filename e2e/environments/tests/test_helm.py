"""Helm through its binary and through its library: the request, and the message of a refusal."""

import json
import sys
from pathlib import Path

import pytest

from environments.helm import HelmActionError, HelmClient

pytestmark = pytest.mark.slow

RECORDING = """#!{python}
import json, pathlib, sys
folder = pathlib.Path({folder!r})
with (folder / "calls").open("a") as calls:
    calls.write(json.dumps([sys.argv[1:], sys.stdin.read()]) + "\\n")
answer = folder / f"answer-{{sys.argv[1]}}"
sys.exit(print(answer.read_text()) if answer.is_file() else "Error: release: not found")
"""


class FakeHelmProgram:
    """An executable that answers from files, has no release, and remembers how it was called."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.binary = folder / "helm"
        self.binary.write_text(RECORDING.format(python=sys.executable, folder=str(folder)))
        self.binary.chmod(0o755)
        for verb in ("upgrade", "rollback", "uninstall"):
            self.answer(verb, "")

    def answer(self, verb: str, text: str) -> None:
        """Let a verb print this."""
        (self.folder / f"answer-{verb}").write_text(text)

    def calls(self) -> list[tuple[list[str], str]]:
        """Arguments and standard input of each call."""
        return [
            tuple(json.loads(line)) for line in (self.folder / "calls").read_text().splitlines()
        ]


@pytest.fixture
def fake(tmp_path: Path) -> FakeHelmProgram:
    """A helm binary of our own."""
    return FakeHelmProgram(tmp_path)


def made(fake: FakeHelmProgram) -> HelmClient:
    """Helm through that binary."""
    return HelmClient(Path("/kubeconfig"), "spaces", binary=str(fake.binary))


def verbs(fake: FakeHelmProgram) -> list[str]:
    """First words of the calls."""
    return [arguments[0] for arguments, _ in fake.calls()]


def test_install_hands_values_over_unchanged(fake: FakeHelmProgram) -> None:
    """Values go through standard input, so that no shell or flag can change them."""
    made(fake).install("release", Path("/chart"), {"a": {"b": "1,2"}})
    arguments, values = fake.calls()[-1]
    assert arguments[:2] == ["upgrade", "--install"]
    assert {"--create-namespace", "--kubeconfig", "/kubeconfig", "spaces"} <= set(arguments)
    assert json.loads(values) == {"a": {"b": "1,2"}}


def test_install_repairs_one_that_was_cut_off(fake: FakeHelmProgram) -> None:
    """A pending release is removed first, because Helm refuses to touch it."""
    fake.answer("status", json.dumps({"info": {"status": "pending-install"}}))
    made(fake).install("release", Path("/chart"), {})
    assert verbs(fake)[-2:] == ["uninstall", "upgrade"]


def test_a_rollback_goes_to_the_revision_before(fake: FakeHelmProgram) -> None:
    """No revision is named, so Helm takes the one before the present one."""
    made(fake).rollback("release")
    assert verbs(fake) == ["rollback"]
    assert fake.calls()[-1][0][1] == "release"


def test_uninstall_of_nothing_is_fine(fake: FakeHelmProgram) -> None:
    """A release that is not there needs no removal."""
    made(fake).uninstall("release")
    assert verbs(fake) == ["status"]


def test_refusal_of_the_binary_is_reported(fake: FakeHelmProgram) -> None:
    """A cluster that does not answer is an error with helm's words, not a missing release."""
    fake.binary.write_text("#!/bin/sh\necho 'Error: cluster unreachable' >&2; exit 1\n")
    with pytest.raises(HelmActionError, match="cluster unreachable"):
        made(fake).status("release")


def test_refusal_of_the_library_is_reported(tmp_path: Path) -> None:
    """Without a binary the library in its own process reports what is wrong."""
    with pytest.raises(HelmActionError, match=r"no-such-kubeconfig"):
        HelmClient(tmp_path / "no-such-kubeconfig", "spaces", binary=None).status("release")
