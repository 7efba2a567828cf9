"""A text that is shown again and again in one place of a terminal.

Lines that changed since the frame before are marked with ``*`` in front, in bold where the terminal
can. What does not fit the height is counted, never scrolled: scrolling would lose the place.
"""

import os
from collections.abc import Callable
from typing import Final

HOME: Final = "\x1b[H"
REST_OF_LINE: Final = "\x1b[K"
REST_OF_SCREEN: Final = "\x1b[J"
OTHER_SCREEN: Final = "\x1b[?1049h\x1b[?25l"
BACK: Final = "\x1b[?25h\x1b[?1049l"
_BOLD, _PLAIN = "\x1b[1m", "\x1b[0m"


class Frames:
    """Draws texts over one another.

    Attributes:
        size: of the terminal, read again for every frame.
    """

    def __init__(self, size: Callable[[], os.terminal_size], *, bold: bool) -> None:
        self._size = size
        self._bold = bold
        self._before: list[str] | None = None

    def draw(self, text: str) -> str:
        """The characters that put ``text`` in the place of the text before."""
        size, lines = self._size(), text.splitlines()
        shown = self._marked(lines)
        if len(shown) > size.lines - 1:
            kept = max(size.lines - 2, 0)
            shown = [*shown[:kept], f"  ... {len(lines) - kept} more lines"]
        self._before = lines
        body = "".join(f"{line}{REST_OF_LINE}\n" for line in (self._cut(s, size) for s in shown))
        return f"{HOME}{body}{REST_OF_SCREEN}"

    def _marked(self, lines: list[str]) -> list[str]:
        known = set(lines if self._before is None else self._before)
        return [f"  {line}" if line in known else f"* {line}" for line in lines]

    def _cut(self, line: str, size: os.terminal_size) -> str:
        cut = line[: size.columns]
        return f"{_BOLD}{cut}{_PLAIN}" if self._bold and cut.startswith("* ") else cut
