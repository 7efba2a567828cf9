"""``gpushare verify`` on this machine, with processes as containers: rows by isolation mode."""

from pathlib import Path
from typing import Any

import pytest

from hardware import barepods
from hardware.barenode import BareNode
from hardware.barepods import ROWS

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(900)]


@pytest.fixture(scope="module", params=["slicing", "mps"])
def rows(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, dict[str, Any]]:
    """The rows of the report of a node with this mode, by name."""
    node: BareNode = request.getfixturevalue(request.param)
    folder: Path = tmp_path_factory.mktemp("pods")
    (gpu,) = barepods.verified(node, folder)["items"]
    return {row["row"]: row for row in gpu["rows"]}


@pytest.mark.parametrize("row", ROWS)
def test_the_row_holds_without_kubernetes(row: str, rows: dict[str, dict[str, Any]]) -> None:
    """It holds, or it does not hold and the documentation of the mode states that."""
    found = rows[row]
    if found["verdict"] == "skip":
        pytest.skip(found["seen"])
    assert found["verdict"] in {"pass", "known"}, f"seen: {found['seen']}; {found['figures']}"
