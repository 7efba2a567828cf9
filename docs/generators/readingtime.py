"""Hook of MkDocs: states below the title of each page how long it takes to read."""
# ruff: noqa: INP001 - a script beside the pages, no package

import re
from typing import Any, Final

WORDS_A_MINUTE: Final = 200
_TITLE: Final = re.compile(r"^# .+$", re.MULTILINE)
_CODE: Final = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)


def minutes(markdown: str) -> int:
    """Minutes to read a page, without its blocks of code; 1 at least."""
    return max(1, round(len(_CODE.sub("", markdown).split()) / WORDS_A_MINUTE))


def on_page_markdown(markdown: str, **_: Any) -> str:
    """The page with the time below its title."""
    line = f"*{minutes(markdown)} min to read*"
    return _TITLE.sub(lambda title: f"{title[0]}\n\n{line}", markdown, count=1)
