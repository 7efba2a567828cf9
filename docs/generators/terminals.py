"""Terminals of the tour as SVG files: the real command on a real pseudo-terminal.

``python docs/generators/terminals.py`` writes them to docs/images; a test compares them with what
the command prints now.
"""
# ruff: noqa: INP001 - a script beside the pictures, no package

import fcntl
import io
import os
import pty
import struct
import subprocess
import sys
import termios
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.text import Text

DOCS: Final = Path(__file__).resolve().parents[1]
COLUMNS: Final = 92
LINES: Final = 60
TERMINALS: Final = {
    "terminal-inspect": ["inspect", "--snapshot", "teams.json"],
    "terminal-explain": ["explain", "pod", "research/llm-0", "--snapshot", "teams.json"],
}
"""Names of the files, and the arguments of the command in each."""
_SECONDS: Final = 60
_FORMAT: Final = """\
<svg class="rich-terminal" viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg">
<style>
.{unique_id}-matrix {{ font-family: monospace; font-size: {char_height}px; line-height: {line_height}px; }}
.{unique_id}-title {{ font-size: 18px; font-weight: bold; font-family: sans-serif; }}
{styles}
</style>
<defs>
<clipPath id="{unique_id}-clip-terminal">
<rect x="0" y="0" width="{terminal_width}" height="{terminal_height}" />
</clipPath>
{lines}
</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}
<g class="{unique_id}-matrix">
{matrix}
</g>
</g>
</svg>
"""  # noqa: E501 - without the web font of the library's own form


def shown(arguments: list[str]) -> str:
    """What the command prints on a terminal in the folder of the examples."""
    ours, its = pty.openpty()
    fcntl.ioctl(its, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, COLUMNS, 0, 0))
    kept = {key: text for key, text in os.environ.items() if not key.startswith("GPUSHARE_")}
    for name in ("COLUMNS", "LINES", "NO_COLOR"):
        kept.pop(name, None)
    with subprocess.Popen(
        [sys.executable, "-m", "gpuinspect", *arguments],
        cwd=DOCS / "examples",
        env=kept | {"TERM": "xterm-256color", "PYTHONUTF8": "1"},
        stdin=subprocess.DEVNULL,
        stdout=its,
        stderr=its,
    ) as process:
        os.close(its)
        text = _all(ours)
        if process.wait(_SECONDS) != 0:
            raise RuntimeError(f"gpushare {' '.join(arguments)} failed:\n{text}")
    return text


def _all(terminal: int) -> str:
    """Everything until the program at the other end has closed it, which Linux calls an error."""
    found = b""
    try:
        while part := os.read(terminal, 65536):
            found += part
    except OSError:
        pass
    os.close(terminal)
    return found.decode().replace("\r\n", "\n")


def drawn(arguments: list[str]) -> str:
    """The terminal as SVG."""
    console = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True)
    console.print(Text(f"$ gpushare {' '.join(arguments)}", style="bold"))
    console.print(Text.from_ansi(shown(arguments)))
    svg = console.export_svg(title="gpushare", code_format=_FORMAT)
    return "\n".join(line.rstrip() for line in svg.splitlines()) + "\n"


def main() -> int:
    """Write every file."""
    for name, arguments in TERMINALS.items():
        (DOCS / "images" / f"{name}.svg").write_text(drawn(arguments), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
