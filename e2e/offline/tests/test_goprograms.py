"""Programs are compiled from pinned modules by the Go that Kubernetes itself is made with."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from host.errors import SetupError
from host.testing.fakeprograms import FakePrograms
from offline import goprograms, gotoolchain

MODULES = ("kubernetes", "etcd", "containerd", "coredns", "kind", "krew", "kueue", "cosign", "helm")
# A fake go of a version that writes down the settings it runs with.
GO = """
case "$1" in
  env) echo {version} ;;
  *) echo "$GOTOOLCHAIN $GOMODCACHE $CGO_ENABLED" > {seen}; exit {status} ;;
esac
"""


@pytest.fixture(autouse=True)
def forgetful() -> Iterator[None]:
    """What is remembered of this machine's Go is of no use to a test, nor the other way round."""
    remembered = (gotoolchain.ensure, gotoolchain.version, goprograms.obtainable)
    for function in remembered:
        function.cache_clear()
    yield
    for function in remembered:
        function.cache_clear()


def fake_go(programs: FakePrograms, tmp_path: Path, *, version: str, status: int = 0) -> Path:
    seen = tmp_path / "seen"
    programs.add("go", GO.format(version=version, seen=seen, status=status))
    return seen


@pytest.mark.parametrize("module", MODULES)
def test_every_module_is_pinned_by_sums_and_names_no_address(module: str) -> None:
    """go.sum holds a sum of each source, and neither file shows where this machine found it."""
    for name in ("go.mod", "go.sum"):
        text = (goprograms.MODULES / module / name).read_text()
        assert "://" not in text
    assert "h1:" in text


@pytest.mark.usefixtures("cache")
@pytest.mark.parametrize(
    ("version", "toolchain"),
    [
        (f"go{gotoolchain.VERSION}", "local"),
        ("go1.26.99", "local"),
        ("go1.26.1", f"go{gotoolchain.VERSION}"),
        ("go1.27.0", f"go{gotoolchain.VERSION}"),
    ],
)
def test_another_minor_version_of_go_fetches_the_right_one(
    programs: FakePrograms, tmp_path: Path, cache: Path, version: str, toolchain: str
) -> None:
    """The Go at hand is used if it is the release's; else it fetches that one."""
    seen = fake_go(programs, tmp_path, version=version)
    goprograms.go(["list"], cwd=tmp_path, timeout_s=60)
    assert seen.read_text().split() == [toolchain, str(cache / "go/mod"), "0"]


@pytest.mark.usefixtures("cache")
@pytest.mark.parametrize(("status", "expected"), [(0, True), (1, False)])
def test_a_module_is_obtainable_when_go_can_fetch_it(
    programs: FakePrograms,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    *,
    status: int,
    expected: bool,
) -> None:
    """No answer of the proxy is no error: another way is taken, and the reason is shown."""
    fake_go(programs, tmp_path, version="go1.26.8", status=status)
    assert goprograms.obtainable("k8s.io/kubernetes@v1.37.1") is expected
    assert ("v1.37.1 cannot be had: " in capsys.readouterr().err) is not expected


@pytest.mark.usefixtures("cache")
def test_without_any_go_nothing_is_obtainable(programs: FakePrograms) -> None:
    """On a machine without Go and without Debian's packages."""
    assert programs.calls() == []
    assert not goprograms.obtainable("k8s.io/kubernetes@v1.37.1")


def test_a_project_that_is_not_pinned_is_an_error() -> None:
    """The sentence names the file."""
    with pytest.raises(SetupError, match=r"kind/go\.mod does not require example\.com/other"):
        goprograms.pinned("kind", "example.com/other")


def test_the_guide_names_the_kueue_that_runs_it() -> None:
    """A new pin needs a new run of the page."""
    page = Path(__file__).parents[3] / "docs" / "guides" / "kueue.md"
    words = " ".join(page.read_text().split())
    assert f" Kueue {goprograms.pinned('kueue', 'sigs.k8s.io/kueue')} " in words
