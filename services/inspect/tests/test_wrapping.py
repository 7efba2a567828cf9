"""Sentences and colours on a terminal."""

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest
from drawncluster import FakeCluster, Gpu

from gpuinspect.terminal.output import wrapped

TEXT = "Nearest: " + "word " * 20 + "end"


def test_long_sentences_are_wrapped_and_indented() -> None:
    """No line is wider than the terminal, and later ones stand under the first."""
    lines = wrapped(TEXT, 50, indent=9).splitlines()
    assert len(lines) > 1
    assert all(len(line) < 50 for line in lines)
    assert all(line.startswith(" " * 9 + "word") for line in lines[1:-1])


@pytest.mark.parametrize("width", [None, 10, 500])
def test_nothing_is_wrapped_without_need(width: int | None) -> None:
    """A pipe, a terminal too narrow to help, and one that is wide enough get one line."""
    assert wrapped(TEXT, width) == f"{TEXT}\n"


@pytest.mark.slow
@pytest.mark.parametrize("no_color", [True, False])
def test_colours_are_for_terminals_that_want_them(tmp_path: Path, no_color: bool) -> None:
    """On a terminal the word is coloured unless NO_COLOR is set, and always there."""
    path = tmp_path / "snapshot.json"
    path.write_text(FakeCluster().node("n", gpus=[Gpu(15)]).json())
    main, side = pty.openpty()
    environment = {k: v for k, v in os.environ.items() if k != "NO_COLOR"} | {"TERM": "xterm"}
    environment |= {"NO_COLOR": "1"} if no_color else {}
    line = [sys.executable, "-m", "gpuinspect", "doctor", "--snapshot", str(path)]
    subprocess.run(line, stdout=side, env=environment, timeout=60, check=False)
    os.close(side)
    output = os.read(main, 65536).decode()
    os.close(main)
    assert "FAIL" in output
    assert ("\x1b[31m" in output) is not no_color
