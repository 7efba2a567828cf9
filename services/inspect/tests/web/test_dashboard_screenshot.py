"""The picture of the dashboard in the README can be taken again."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

sys.path.append(str(Path(__file__).parents[4] / "docs" / "generators"))

import screenshot

LARGEST = 150_000


@pytest.mark.slow
def test_the_picture_is_taken_from_the_real_dashboard(
    chromium: Any, serving: Callable[..., Any]
) -> None:
    """With the nodes of the example, and small enough for a README."""
    with serving(f"--snapshot={screenshot.SNAPSHOT}") as url:
        image = screenshot.taken(chromium, url)
    assert 10_000 < len(image) < LARGEST
