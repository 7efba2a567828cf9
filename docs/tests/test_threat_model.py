"""The threat model has what each account of the chart can do."""

import re
from pathlib import Path

import pytest
from charting import render

pytestmark = pytest.mark.slow

PAGE = (Path(__file__).parents[1] / "threat-model.md").read_text()
EVERYTHING = {
    "dashboard": {"enabled": True},
    "defragmentation": {"enabled": True},
    "idle": {"schedule": "30 * * * *"},
    "verify": {"schedule": "17 4 * * *"},
}


def accounts(mode: str) -> set[str]:
    """Service accounts of a release, whatever is off by default included."""
    rendered = render(values={**EVERYTHING, "scheduler": {"mode": mode}})
    return {account["metadata"]["name"] for account in rendered.of("ServiceAccount")}


def test_every_account_has_a_row() -> None:
    """The table of stolen credentials has those of both modes, and no others."""
    _, _, after = PAGE.partition("\n## What each credential can do if stolen\n")
    section, _, _ = after.partition("\n## ")
    rows = re.findall(r"^\| `([\w-]+)`", section, re.MULTILINE)
    assert set(rows) == accounts("second") | accounts("extender")
