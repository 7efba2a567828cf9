"""The container that tests run in, and how its results are counted."""

import platform
from pathlib import Path

import pytest

from emulated import inputs, run
from emulated.inputs import Inputs
from host.architecture import Architecture
from host.errors import SetupError
from host.testing.fakeprograms import FakePrograms

ARM = Architecture("arm64", "aarch64")
FOLDER = "libs/gpucore/tests"
RESULTS = """<?xml version="1.0"?><testsuites>
<testsuite tests="9" failures="1" errors="2" skipped="3"/>
</testsuites>"""


@pytest.fixture(autouse=True)
def on_amd64(monkeypatch: pytest.MonkeyPatch) -> None:
    """This machine has an x86_64 processor."""
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")


def needed(folder: Path) -> Inputs:
    """Inputs as they are when everything was made."""
    return Inputs(
        image="tests:1",
        packages=folder / "packages",
        libraries={"mocknvml-12": folder / "cross-mocknvml-12"},
    )


def test_tests_find_the_cross_compiled_library_where_a_build_of_their_own_would_be(
    tmp_path: Path,
) -> None:
    """They look in their cache folder, so nothing compiles in the container."""
    words = run.command(needed(tmp_path), FOLDER, output=tmp_path, mark="not slow", more=["-x"])
    assert f"--volume={tmp_path}/cross-mocknvml-12:/cache/gpushare/mocknvml-12" in words
    assert "--env=XDG_CACHE_HOME=/cache" in words


def test_the_checkout_cannot_be_written_and_there_is_no_network(tmp_path: Path) -> None:
    """And the arguments for pytest come after the image."""
    words = run.command(needed(tmp_path), FOLDER, output=tmp_path, mark="not slow", more=["-x"])
    assert {f"--volume={inputs.ROOT}:/src:ro", "--network=none"} <= set(words)
    assert words[words.index("tests:1") :][-2:] == ["-x", FOLDER]


def test_errors_count_as_failures() -> None:
    """What neither failed nor was skipped passed."""
    counts = run.counted(FOLDER, RESULTS, 61.4)
    assert (counts.passed, counts.failed, counts.skipped) == (3, 3, 3)
    assert counts.line().split() == [FOLDER, "3", "3", "3", "61"]


def test_a_container_that_ran_no_test_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Results of an earlier run are not taken for its own, and the message names the log."""
    (tmp_path / "bin").mkdir()
    programs = FakePrograms(tmp_path / "bin")
    programs.add("nice", "echo no such image; exit 125")
    monkeypatch.setenv("PATH", str(programs.folder))
    (tmp_path / "results.xml").write_text(RESULTS)
    with pytest.raises(SetupError, match=r"no test of libs/gpucore/tests ran: see .*pytest.log"):
        run.run(needed(tmp_path), FOLDER, output=tmp_path, mark="not slow", more=[])
    assert (tmp_path / "pytest.log").read_text() == "no such image\n"


def test_packages_are_fetched_by_hash_and_for_the_other_processor(tmp_path: Path) -> None:
    """Nothing is compiled here, since it would be for this processor."""
    command = inputs.packages_command(ARM, tmp_path)
    assert {"--require-hashes", "--only-binary=:all:"} <= set(command)
    assert "--python-platform=aarch64-manylinux_2_36" in command
