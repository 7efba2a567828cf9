"""KUBERNETES names the version; without it the newest is used, or the oldest where it must be."""

import re
from pathlib import Path

import pytest

from host.errors import SetupError
from offline import goprograms, release


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("", ""),
        ("1.20", release.OLDEST),
        ("v1.20.2", release.OLDEST),
        (release.minor(release.NEWEST), release.NEWEST),
        (release.NEWEST, release.NEWEST),
        ("1.36.4", "1.36.4"),
    ],
)
def test_the_variable_names_a_version_or_a_tested_minor(
    monkeypatch: pytest.MonkeyPatch, text: str, version: str
) -> None:
    """Both ends of the range are known by their minor; anything else is a whole version."""
    monkeypatch.setenv("KUBERNETES", text)
    assert release.requested() == version


@pytest.mark.parametrize("text", ["newest", "1.36", "1.36.4-rc.1"])
def test_a_text_that_is_no_version_is_refused(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    """The error names the value and what is accepted."""
    monkeypatch.setenv("KUBERNETES", text)
    with pytest.raises(SetupError, match=rf"KUBERNETES={text} .*1\.36\.4.* or 1\.20"):
        release.requested()


@pytest.mark.parametrize(
    ("reachable", "version"), [(True, release.NEWEST), (False, release.OLDEST)]
)
def test_without_the_variable_the_newest_that_can_be_had_is_chosen(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    *,
    reachable: bool,
    version: str,
) -> None:
    """Without a module proxy the environment uses Debian's Kubernetes and prints that it does."""
    monkeypatch.delenv("KUBERNETES", raising=False)
    monkeypatch.setattr(goprograms, "obtainable", lambda _: reachable)
    assert release.chosen() == version
    assert ("is used instead of" in capsys.readouterr().err) is not reachable


def test_a_version_that_is_requested_is_never_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that names a version fails without it, rather than pass on another."""
    monkeypatch.setenv("KUBERNETES", release.NEWEST)
    monkeypatch.setattr(goprograms, "obtainable", lambda _: False)
    assert release.chosen() == release.NEWEST


def test_the_page_about_versions_names_those_that_are_tested() -> None:
    """A reader of docs/versions.md, and of the README's table, finds what the cases run on."""
    root = Path(__file__).parents[3]
    for page in ("docs/versions.md", "README.md"):
        text = (root / page).read_text()
        assert {release.NEWEST, release.OLDEST} <= set(re.findall(r"\b1\.\d+\.\d+\b", text))
