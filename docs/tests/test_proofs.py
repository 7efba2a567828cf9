"""Tests and modules that pages name as the proof of a claim are there."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    [
        *(ROOT / name for name in ("README.md", "ARCHITECTURE.md")),
        *(ROOT / "docs").rglob("*.md"),
        *ROOT.glob("services/*/README.md"),
    ]
)
NAMED = re.compile(r"`((?:services|libs|helm|e2e|docs)/[\w/.-]+\.py)(?:::(\w+))?`")
ALONE = re.compile(r"`(test_\w+)` in\s+`([\w/.-]+\.py)`")


def proofs(page: Path) -> Iterator[tuple[str, str]]:
    """Files that a page names in code, each with a test in it or without."""
    text = page.read_text()
    yield from NAMED.findall(text)
    yield from ((path, test) for test, path in ALONE.findall(text))


def complaint(path: str, test: str) -> str | None:
    """Why a file or a test in it is not there; None where it is."""
    file = ROOT / path
    if not file.is_file():
        return f"{path} is not there"
    if test and not re.search(rf"^(async )?def {test}\(", file.read_text(), re.MULTILINE):
        return f"{path} has no {test}"
    return None


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_proof_that_a_page_names_is_there(page: Path) -> None:
    """A test that was renamed or removed must not go on backing a claim."""
    found = [why for path, test in proofs(page) if (why := complaint(path, test))]
    assert found == []


def test_pages_name_proofs() -> None:
    """The pattern finds those that are there, and what is not there has a complaint."""
    named = {proof for page in PAGES for proof in proofs(page)}
    assert len(named) > 60
    assert complaint("docs/tests/test_proofs.py", "test_pages_name_proofs") is None
    assert complaint("docs/tests/test_proofs.py", "test_gone") is not None
    assert complaint("docs/tests/gone.py", "") is not None


PACKAGES = {
    "deviceplugin": "services/deviceplugin/src/gpudeviceplugin",
    "extender": "services/extender/src/gpuextender",
    "gpucore": "libs/gpucore/src/gpucore",
    "gpukube": "libs/gpukube/src/gpukube",
    "inspect": "services/inspect/src/gpuinspect",
}


def test_every_module_with_a_mutation_score_is_there() -> None:
    """A score of a module that was renamed or removed is a claim about nothing."""
    text = (ROOT / "docs" / "contributing.md").read_text()
    rows = re.findall(r"^\| (\w+) \| ([\w/]+)[^|]* \| \d+ % \|", text, re.MULTILINE)
    assert len(rows) > 40
    gone = [row for row in rows if not any((ROOT / PACKAGES[row[0]]).glob(f"**/{row[1]}.py"))]
    assert gone == []
