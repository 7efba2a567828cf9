"""Names of architectures, and what is foreign here."""

import platform

import pytest

from host import architecture
from host.errors import SetupError


@pytest.fixture(autouse=True)
def on_amd64(monkeypatch: pytest.MonkeyPatch) -> None:
    """This machine has an x86_64 processor."""
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")


def test_without_a_name_it_is_this_machines() -> None:
    """Its names bear no suffix, and its compiler is the one that every machine calls so."""
    own = architecture.named("")
    assert (own.name, own.foreign, own.suffix(), own.compiler) == ("amd64", False, "", "gcc")


def test_another_architecture_shows_in_names_and_has_a_cross_compiler() -> None:
    """Images and cache entries of two architectures never share a name."""
    other = architecture.named("arm64")
    assert (other.foreign, other.suffix()) == (True, "-arm64")
    assert other.compiler == "aarch64-linux-gnu-gcc"


def test_an_architecture_that_nothing_is_built_for_is_refused() -> None:
    """The message has the names that are accepted."""
    with pytest.raises(SetupError, match="'riscv64' is none of amd64, arm64"):
        architecture.named("riscv64")


@pytest.mark.parametrize(("machine", "suffix"), [("aarch64", "-arm64"), ("ppc64le", "-ppc64le")])
def test_a_machine_has_a_suffix_listed_or_not(machine: str, suffix: str) -> None:
    """An image on a base of an unlisted machine is named by that machine."""
    assert architecture.suffix(machine) == suffix
