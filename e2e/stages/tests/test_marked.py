"""`make budgets` and `make e2e` read only the files whose text names their mark."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[3]
FOLDERS = ("libs", "services", "helm", "docs", "e2e")
MARK = re.compile(r"pytest\.mark\.(e2e|budget)\b")


def test_no_other_file_marks_a_test() -> None:
    """A mark that a conftest or a helper gives would leave its tests out of `make test`."""
    python = {path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py")}
    others = {path for path in python if not path.name.startswith("test_")}
    assert [str(path) for path in sorted(others) if MARK.search(path.read_text())] == []
