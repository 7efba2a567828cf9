"""Packages of Debian's releases are fetched into folders of their own."""

from pathlib import Path

import pytest

from host import fetching
from host.testing.fakeprograms import FakePrograms
from offline import packages

VERBS = {"update", "download"}
SIGNED_LIST_FAILS_ONCE = """
case "$*" in *update*) [ -e "$FAILED" ] || {
  : > "$FAILED"
  echo 'E: Failed to fetch bullseye/InRelease  503  Service Unavailable'
  exit 100
};; esac
"""


@pytest.mark.usefixtures("cache")
def test_lists_of_packages_are_read_again_when_the_mirror_failed_once(
    programs: FakePrograms, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """apt-get tries files again, and gives up at the first refusal of the list of files."""
    monkeypatch.setattr(fetching, "PAUSES_S", (0.0,))
    monkeypatch.setattr(packages, "archive", lambda: "http://mirror")
    monkeypatch.setattr(packages, "_KEYRING", tmp_path)
    monkeypatch.setenv("FAILED", str(tmp_path / "failed"))
    programs.add("apt-get", SIGNED_LIST_FAILS_ONCE)
    (tmp_path / "jq_1.deb").touch()

    deb = packages.download("jq", suite="bookworm", into=tmp_path)

    assert deb == tmp_path / "jq_1.deb"
    verbs = [word for call in programs.calls() for word in call.split() if word in VERBS]
    assert verbs == ["update", "update", "download"]
