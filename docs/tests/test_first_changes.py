"""The worked examples of CONTRIBUTING.md apply to the code as it is, and their tests pass."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CHANGES = ROOT / "docs" / "changes"
FILES_OF_A_CHANGE = 4
COPIED = ("libs", "services", "docs/reason-codes.md", "docs/metrics.md", "pyproject.toml")
TESTS = {
    "metric": ("services/extender/tests/test_api.py", "explained_node_by_node"),
    "column": ("services/inspect/tests/test_golden.py", "inspect and wide"),
    "reason-code": ("libs/gpucore/tests/test_fit.py", "inventory"),
}
SOURCES = [path.relative_to(ROOT) for path in ROOT.glob("*/*/src")]


def files_of(change: str) -> list[str]:
    """The files that a diff changes."""
    text = (CHANGES / f"{change}.diff").read_text()
    return re.findall(r"^\+\+\+ b/(\S+)$", text, re.MULTILINE)


@pytest.fixture(name="copied", scope="module")
def _copied(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of what the examples change and what their tests need."""
    root = tmp_path_factory.mktemp("copy")
    for name in COPIED:
        source, target = ROOT / name, root / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copyfile(source, target)
    return root


def apply(change: str, root: Path, *options: str) -> None:
    """Change the files of a copy."""
    command = ["git", "apply", *options, str(CHANGES / f"{change}.diff")]
    # without this, git would look for a repository around the copy
    environment = os.environ | {"GIT_CEILING_DIRECTORIES": str(root.parent)}
    subprocess.run(command, cwd=root, env=environment, check=True, timeout=60)


def passes(change: str, root: Path) -> bool:
    """Whether the tests of an example pass on a copy."""
    file, names = TESTS[change]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(str(root / src) for src in SOURCES)}
    command = [sys.executable, "-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [*command, "-m", "not gpu", file, "-k", names],
        cwd=root,
        env=environment,
        capture_output=True,
        timeout=240,
        check=False,
    )
    assert done.returncode in {0, 1}, done.stdout.decode() + done.stderr.decode()
    return done.returncode == 0


@pytest.mark.parametrize("change", TESTS)
def test_a_first_change_touches_few_files(change: str) -> None:
    """The page names every file of the diff, and no others."""
    page = (ROOT / "CONTRIBUTING.md").read_text()
    (row,) = re.findall(rf"^\|[^|]+\|([^|]+)\|[^|]*docs/changes/{change}\.diff", page, re.MULTILINE)
    assert sorted(re.findall(r"`([^`]+)`", row)) == sorted(files_of(change))
    assert len(files_of(change)) <= FILES_OF_A_CHANGE


@pytest.mark.slow
@pytest.mark.parametrize("change", TESTS)
def test_a_first_change_makes_its_test_pass(copied: Path, change: str) -> None:
    """The test fails with the changes to tests alone, and passes with the whole."""
    tests, rest = "--include=*/tests/*", "--exclude=*/tests/*"
    apply(change, copied, tests)
    assert not passes(change, copied)
    apply(change, copied, rest)
    assert passes(change, copied)
