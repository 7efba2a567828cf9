"""The scores of a mutation run, and the choice of modules."""

from pathlib import Path

import pytest

from host.waiting import until
from mutation import changes, scores, workspace
from mutation.workspace import PACKAGES, Workspace, settled

RESULTS = """
    gpuextender.binding.xǁWriterǁwrite__mutmut_1: killed
    gpuextender.binding.xǁWriterǁwrite__mutmut_2: survived
    gpuextender.binding.xǁWriterǁwrite__mutmut_3: timeout
    gpuextender.bind.x_run__mutmut_1: no tests
    gpuextender.bind.x_run__mutmut_2: not checked
"""


def test_a_score_counts_survivors_and_unreached_mutants_against_a_module() -> None:
    """A timeout is noticed; a mutant that no test reaches is not; an unchecked one is left out."""
    bind, binding = scores.read(RESULTS, "gpuextender")
    assert (bind.module, bind.noticed, bind.total) == ("bind", 0, 1)
    assert (binding.module, binding.noticed, binding.total) == ("binding", 2, 3)
    assert round(binding.percent) == 67


def test_the_table_lists_survivors_only_on_request() -> None:
    """Their names are long; the score is what most runs are for."""
    found = scores.read(RESULTS, "gpuextender")
    assert "write__mutmut_2" not in scores.table(found, survivors=False)
    assert "write__mutmut_2 (survived)" in scores.table(found, survivors=True)
    assert "| binding | 3 | 2 | 67 % |" in scores.table(found, survivors=False)


def test_a_module_is_found_by_its_last_name() -> None:
    """``supervisor`` means ``isolation/mps/supervisor``."""
    assert changes.select(PACKAGES["deviceplugin"], ["supervisor"], base="HEAD") == [
        "isolation/mps/supervisor"
    ]


def test_an_unknown_module_is_an_error_that_names_it() -> None:
    """A misspelt module must not look like a perfect score."""
    with pytest.raises(changes.UnknownModuleError, match="supervizor"):
        changes.select(PACKAGES["deviceplugin"], ["supervizor"], base="HEAD")


def test_a_spinner_leaves_its_last_state() -> None:
    """As on a terminal, where each state is written over the one before."""
    assert settled("\r| tests\r/ tests\ndone\r\n\r- 1/2\r- 2/2") == "/ tests\ndone\n- 2/2"


def fake_mutmut(folder: Path, script: str) -> None:
    """A package of that name, which runs ``script``."""
    package = folder / "mutmut"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "__main__.py").write_text(script)


def test_output_to_a_file_has_no_spinner(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each state of it would be a line of the log."""
    fake_mutmut(tmp_path / "work", r"print('\r| a\r/ a\r- a'); raise SystemExit(3)")
    monkeypatch.setattr(workspace, "ROOT", tmp_path)
    status = Workspace(tmp_path, PACKAGES["extender"]).run_mutmut(jobs=1, timeout_s=60)
    assert (status, capsys.readouterr().out) == (3, "- a\n")


def test_a_run_that_takes_too_long_ends_with_all_that_it_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """What mutmut left running would go on in a folder that is removed."""
    fake_mutmut(
        tmp_path / "work",
        "import subprocess, pathlib\n"
        "child = subprocess.Popen(['sleep', '600'])\n"
        "pathlib.Path('child').write_text(str(child.pid))\n"
        "print('half', flush=True)\n"
        "child.wait()\n",
    )
    monkeypatch.setattr(workspace, "ROOT", tmp_path)
    status = Workspace(tmp_path, PACKAGES["extender"]).run_mutmut(jobs=1, timeout_s=3)
    child = Path("/proc", (tmp_path / "work" / "child").read_text(), "cmdline")
    until("the child is gone", lambda: not child.exists() or not child.read_bytes(), seconds=30)
    assert (status, capfd.readouterr().out) == (workspace.TIMED_OUT, "half\n")
