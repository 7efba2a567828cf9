"""The site as readers get it, built once for the tests that look at it."""

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
_FOLDERS = ("docs/tests", "docs/generators", "helm/tests")
sys.path[:0] = [str(ROOT / folder) for folder in _FOLDERS]

from sitebuild import build  # noqa: E402 - found by the line above


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the built site; a warning of the builder is a failure."""
    folder = tmp_path_factory.mktemp("site")
    done = build(ROOT / "mkdocs.yml", folder)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder
