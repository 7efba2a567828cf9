"""Lets chart tests import what they share, and the chart's generators; finds promtool."""

import sys
from pathlib import Path

import pytest

import offline
from host.errors import SetupError
from host.testing.lacking import lacking

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent), str(HERE.parents[1] / "docs" / "generators")]


@pytest.fixture(scope="session")
def promtool_path() -> Path:
    """Debian's promtool; where there is none, that fails with CI=true and is reported otherwise."""
    try:
        return offline.ensure_prometheus().promtool
    except SetupError as reason:
        lacking("no promtool", reason)
