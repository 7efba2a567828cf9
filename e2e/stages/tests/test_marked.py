"""`make budgets` and the stages of `make test` read only the files whose text names a mark."""

import re
from pathlib import Path

from stages.plan import cases_in, plan

ROOT = Path(__file__).parents[3]
FOLDERS = ("libs", "services", "helm", "docs", "e2e")
MARK = re.compile(r"pytest\.mark\.(e2e|budget)\b")


def test_no_other_file_marks_a_test() -> None:
    """A mark that a conftest or a helper gives would leave its tests out of `make test`."""
    python = {path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py")}
    others = {path for path in python if not path.name.startswith("test_")}
    assert [str(path) for path in sorted(others) if MARK.search(path.read_text())] == []


def test_files_without_a_case_are_not_read(tmp_path: Path) -> None:
    """In the order of the folders, by their paths in the checkout."""
    texts = {
        "b/test_b.py": "pytest.mark.e2e",
        "a/test_a.py": "mark.e2e",
        "a/test_c.py": "mark.slow",
    }
    for name, text in {**texts, "a/helper.py": "mark.e2e", "c/test_d.py": "mark.e2e"}.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    assert cases_in("b", "a", root=tmp_path) == ["b/test_b.py", "a/test_a.py"]


def test_kills_come_after_the_other_cases_on_a_control_plane() -> None:
    """Their bound of time does not count the start of the cluster beside them."""
    stages = [
        each for phase in plan(cluster="c", ondemand=False) for lane in phase for each in lane
    ]
    (kills,) = (word for each in stages for word in each.target if "e2e/chaos/tests" in word)
    files = kills.removeprefix("CASES=").split()
    assert [path.startswith("e2e/chaos/") for path in files] == sorted(
        path.startswith("e2e/chaos/") for path in files
    )


def test_a_case_runs_in_one_stage() -> None:
    """The folders that one stage reads and the paths that it leaves to another fit together."""
    stages = [
        stage for phase in plan(cluster="c", ondemand=False) for lane in phase for stage in lane
    ]
    named = [word for stage in stages for word in stage.target if word.startswith("CASES=")]
    files = [path for word in named for path in word.removeprefix("CASES=").split()]
    assert len(files) == len(set(files))
    (kind,) = (stage for stage in stages if "CASES=e2e" in stage.target)
    (ignored,) = (word for word in kind.target if word.startswith("ARGS="))
    apart = {path for path in files if path.startswith("e2e/") and path != "e2e"}
    assert all(
        any(f"--ignore={part}" in ignored for part in (path, *above(path))) for path in apart
    )


def above(path: str) -> list[str]:
    """The folders that a path is in."""
    return [str(folder) for folder in Path(path).parents if str(folder) != "."]
