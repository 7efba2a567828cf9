"""The Debian archive is read from the machine's own apt configuration, in both of its formats."""

from pathlib import Path

import pytest

from host.errors import SetupError
from offline import packages
from offline.aptsources import (
    AptSource,
    codename,
    debian_archive,
    parse_deb822,
    parse_one_line,
    read,
)

DEB822 = """\
# the base system
Types: deb deb-src
URIs: http://mirror.example/debian/
Suites: bookworm bookworm-updates
Components: main
  contrib
Signed-By: /usr/share/keyrings/k.gpg

Types: deb
URIs: http://off.example/debian
Suites: bookworm
Components: main
Enabled: no

Types: deb-src
URIs: http://source.example/debian
Suites: bookworm
Components: main
"""


def test_one_line_sources_are_read_with_and_without_options() -> None:
    """Options, comments and deb-src lines do not disturb the binary sources."""
    text = (
        "# deb http://old.example/debian bookworm main\n"
        "deb [arch=amd64 signed-by=/k.gpg] http://a.example/debian bookworm main non-free # note\n"
        "deb-src http://a.example/debian bookworm main\n"
        "deb http://b.example/apt ./\n"
    )
    assert list(parse_one_line(text)) == [
        AptSource("http://a.example/debian", "bookworm", ("main", "non-free")),
        AptSource("http://b.example/apt", "./", ()),
    ]


def test_deb822_stanzas_give_one_source_per_suite() -> None:
    """Continuation lines count, disabled and source-only stanzas do not."""
    assert list(parse_deb822(DEB822)) == [
        AptSource("http://mirror.example/debian/", "bookworm", ("main", "contrib")),
        AptSource("http://mirror.example/debian/", "bookworm-updates", ("main", "contrib")),
    ]


def test_a_machine_may_use_both_formats(tmp_path: Path) -> None:
    """sources.list, *.list and *.sources are all read; other files are not."""
    parts = tmp_path / "sources.list.d"
    parts.mkdir()
    (tmp_path / "sources.list").write_text("deb http://one.example bookworm main\n")
    (parts / "b.list").write_text("deb http://two.example stable main\n")
    (parts / "a.sources").write_text(DEB822)
    (parts / "c.list.save").write_text("deb http://never.example stable main\n")
    assert [source.uri for source in read(tmp_path)] == [
        "http://one.example",
        "http://two.example",
        "http://mirror.example/debian/",
        "http://mirror.example/debian/",
    ]


def test_the_archive_is_the_one_that_serves_this_release() -> None:
    """A foreign repository with other suites is passed over and the slash at the end goes."""
    sources = [AptSource("http://tools.example/apt", "stable", ("main",)), *parse_deb822(DEB822)]
    assert debian_archive(sources, codename="bookworm") == "http://mirror.example/debian"


def test_another_vendor_with_the_same_suite_name_is_not_debian() -> None:
    """The archive that also has the suite of updates is Debian's, whatever the order."""
    vendor = AptSource("http://vendor.example", "bookworm", ("main",))
    sources = [vendor, *parse_deb822(DEB822)]
    assert debian_archive(sources, codename="bookworm") == "http://mirror.example/debian"


def test_a_list_of_mirrors_stands_for_its_first(tmp_path: Path) -> None:
    """Debian's cloud images name a file of mirrors instead of an address."""
    mirrors = tmp_path / "mirrors.list"
    mirrors.write_text("# near\nhttp://near.example/debian priority:1\nhttp://far.example/debian\n")
    (tmp_path / "sources.list").write_text(f"deb mirror+file:{mirrors} bookworm main\n")
    assert [source.uri for source in read(tmp_path)] == ["http://near.example/debian"]


@pytest.mark.parametrize(
    "sources", [[], [AptSource("http://x.example/ubuntu", "noble", ("main",))]]
)
def test_without_a_debian_archive_the_way_out_is_named(sources: list[AptSource]) -> None:
    """On other systems the error names the release it looked for."""
    with pytest.raises(SetupError, match="noble"):
        debian_archive(sources, codename="noble")


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("ID=debian\nVERSION_CODENAME=bookworm\n", "bookworm"),
        ('VERSION_CODENAME="trixie"\n', "trixie"),
        ("ID=arch\n", ""),
    ],
)
def test_the_release_name_comes_from_os_release(tmp_path: Path, text: str, name: str) -> None:
    """Quoted or not, and empty where the system has none."""
    (tmp_path / "os-release").write_text(text)
    assert codename(tmp_path / "os-release") == name


def test_the_private_list_names_every_suite_at_one_address() -> None:
    """Every line carries Debian's keyring, so no other key is trusted for these packages."""
    lines = packages.sources_list("http://mirror.example/debian").splitlines()
    assert {line.split()[3] for line in lines if line.startswith("deb ")} == {
        "bullseye",
        "bookworm",
        "trixie",
    }
    assert all("signed-by=" in line and "http://mirror.example/debian" in line for line in lines)
