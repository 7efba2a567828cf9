"""`cluster prepare` stops a CI run that lacks something, and lets anybody else's go on."""

import pytest

import offline
from cluster import __main__ as command
from host.errors import SetupError


@pytest.fixture(autouse=True)
def nothing_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that cannot build Kubernetes."""

    def lacking(_: str) -> None:
        raise SetupError("no compiler")

    monkeypatch.setenv("KUBERNETES", "1.20")
    monkeypatch.setattr(offline, "ensure_programs", lacking)


def test_ci_demands_everything(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With CI=true what is missing is an error of one sentence."""
    monkeypatch.setenv("CI", "true")
    assert command.main(["prepare"]) == 1
    assert capsys.readouterr().err == "cluster: error: no compiler\n"


def test_elsewhere_the_cases_tell_what_lacks(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without CI the run goes on, and its cases are skipped for that reason."""
    monkeypatch.delenv("CI", raising=False)
    assert command.main(["prepare"]) == 0
    assert "going on without: no compiler" in capsys.readouterr().err
