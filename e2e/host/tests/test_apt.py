"""Packages of Debian are installed whatever the state of the machine's package lists."""

from collections.abc import Sequence

import pytest

from host import apt, fetching
from host.errors import SetupError

DOWN = "`apt-get` exited 100:\n  E: Failed to fetch Packages 503 Service Unavailable"
OLD = "`apt-get` exited 100:\n  E: Failed to fetch qemu_1.deb 404  Not Found"
NONE = "`apt-get` exited 100:\n  E: Unable to locate package qemu"
HELD = "`apt-get` exited 100:\n  E: dpkg was interrupted, you must manually run dpkg --configure -a"


class Mirror:
    """Fails with these errors, then answers."""

    def __init__(self, *errors: str) -> None:
        self.errors = list(errors)
        self.verbs: list[str] = []

    def as_root(self, argv: Sequence[str], *, timeout_s: float) -> str:
        """Note the call of apt-get."""
        assert argv[0] == "apt-get"
        assert timeout_s > 0
        self.verbs += [word for word in argv if word in {"install", "update"}]
        if self.errors:
            raise SetupError(self.errors.pop(0))
        return ""


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetching, "PAUSES_S", (0.0,) * len(fetching.PAUSES_S))


@pytest.mark.parametrize(
    ("errors", "verbs"),
    [
        ((), ["install"]),
        ((DOWN,), ["install", "install"]),
        ((NONE,), ["install", "update", "install"]),
        ((NONE, DOWN), ["install", "update", "update", "install"]),
        ((OLD,), ["install", "update", "install"]),
    ],
    ids=["at once", "mirror down once", "no lists", "no lists and mirror down once", "old lists"],
)
def test_a_package_is_installed(
    errors: tuple[str, ...], verbs: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a mirror has replaced is never found at its old address: lists are read at once."""
    mirror = Mirror(*errors)
    monkeypatch.setattr(apt, "as_root", mirror.as_root)
    apt.install("qemu")
    assert mirror.verbs == verbs


def test_another_failure_is_final(monkeypatch: pytest.MonkeyPatch) -> None:
    mirror = Mirror(HELD)
    monkeypatch.setattr(apt, "as_root", mirror.as_root)
    with pytest.raises(SetupError, match="dpkg was interrupted"):
        apt.install("qemu")
    assert mirror.verbs == ["install"]
