"""Pictures of the documentation show what the programs print now."""

import re
import struct
import xml.etree.ElementTree as ET
from pathlib import Path

import architecture
import pytest
import screenshot
import terminals

IMAGES = Path(__file__).parents[1] / "images"
LARGEST_SCREENSHOT = 150_000


@pytest.mark.slow
@pytest.mark.parametrize("name", terminals.TERMINALS)
def test_a_recorded_terminal_shows_what_the_command_prints(name: str) -> None:
    """`python docs/generators/terminals.py` writes the files anew."""
    assert (IMAGES / f"{name}.svg").read_text() == terminals.drawn(terminals.TERMINALS[name])


@pytest.mark.slow
def test_a_command_that_fails_is_no_picture() -> None:
    """The generator ends with what it printed."""
    with pytest.raises(RuntimeError, match="No such command"):
        terminals.shown(["inspct"])


def test_the_diagram_is_what_its_generator_draws() -> None:
    """`python docs/generators/architecture.py` writes the file anew."""
    assert (IMAGES / "architecture.svg").read_text() == architecture.drawn()


def test_texts_of_the_diagram_fit_their_boxes() -> None:
    """At eight pixels a letter, and every arrow begins and ends within the picture."""
    for box in architecture.BOXES:
        assert all(len(line) * 7 < box.width for line in (box.title, *box.lines)), box
        assert len(box.lines) * 18 + 26 <= box.height, box
    for arrow in architecture.ARROWS:
        for x, y in (arrow.start, arrow.end, arrow.at):
            assert 0 < x < architecture.WIDTH
            assert 0 < y < architecture.HEIGHT


@pytest.mark.parametrize("path", sorted(IMAGES.glob("*.svg")), ids=lambda path: path.stem)
def test_a_picture_fetches_nothing(path: Path) -> None:
    """Neither fonts nor scripts; it is well-formed."""
    text = path.read_text()
    ET.fromstring(text)
    assert not re.search(r"url\((?!#)|<script|<image|href=", text)


def test_the_screenshot_is_small_and_has_the_size_of_its_window() -> None:
    """`python docs/generators/screenshot.py` takes it anew."""
    raw = screenshot.PATH.read_bytes()
    assert raw[:8] == b"\x89PNG\r\n\x1a\n"
    assert len(raw) < LARGEST_SCREENSHOT
    assert struct.unpack(">II", raw[16:24]) == tuple(screenshot.SIZE.values())
