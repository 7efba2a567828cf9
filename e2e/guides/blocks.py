"""Reads from a page what its reader would type, and what the page shows as output.

A page that is to be run specifies where, in a comment of its own line: ``<!-- runs: kind -->`` on a
cluster with the stack, ``<!-- runs: claims -->`` on one whose nodes may offer claims,
``<!-- runs: original -->`` on one with the stack of 2019, ``<!-- runs: offline -->`` without one,
``<!-- runs: controlplane -->`` with an API server and no nodes, ``<!-- runs: kueue -->`` on the
same with Kueue. In it a fence ``console`` holds a
terminal: a line that begins with ``$`` and a space is a command, one with ``>`` and a space goes
on with it, and the lines after are its output. ``# exit 1`` at the end of a command means that it
ends so. A fence with ``title="name"`` is a file that the reader saves under that name.

``<!-- differs: node at [10.0.0.1] -->``, on a line of its own and as often as needed, repeats words
of an output. What is in brackets is real where the page was written and differs elsewhere: anything
may stand in its place.

Fences begin at the start of a line; one that is indented, in a list say, is not run. Nothing is
promised about how Markdown is otherwise made.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path

from guides.matching import ANY

_PLACE = re.compile(r"^<!-- runs: (\w+) -->$", re.MULTILINE)
_DIFFERS = re.compile(r"^<!-- differs: (.+) -->$", re.MULTILINE)
_PART = re.compile(r"\[(.*?)\]")
_OPEN = re.compile(r"^```(?P<language>[\w-]+)(?P<more> .*)?$")
_CLOSE = "```"
_TITLE = re.compile(r'\btitle="([^"/]+)"')
_EXIT = re.compile(r"\s+#\s*exit (\d+)$")
_COMMAND, _MORE = "$ ", "> "


class GuideError(ValueError):
    """A page cannot be run as it is written; states where and why."""


class GuideTarget(StrEnum):
    """Where the commands of a page can be run."""

    KIND = "kind"
    ORIGINAL = "original"
    OFFLINE = "offline"
    CONTROL_PLANE = "controlplane"
    KUEUE = "kueue"
    CLAIMS = "claims"


@dataclass(frozen=True)
class File:
    """A file that the reader saves beside the terminal.

    Attributes:
        line: of the page, where its fence opens; from 1.
    """

    name: str
    text: str
    line: int


@dataclass(frozen=True)
class Command:
    """A command and what comes back.

    Attributes:
        text: as typed, several lines where the page shows several.
        expected: lines of output; none where the page does not care.
        status: exit status that it ends with.
        line: of the page; from 1.
    """

    text: str
    expected: tuple[str, ...]
    status: int
    line: int


@dataclass(frozen=True)
class Guide:
    """A page, where it runs, and its steps in their order."""

    path: Path
    place: GuideTarget
    steps: tuple[File | Command, ...]


@dataclass(frozen=True)
class Fence:
    """A fenced block, its title where it has one, and the line where it opens."""

    language: str
    title: str | None
    lines: tuple[str, ...]
    line: int

    @property
    def joined(self) -> list[str]:
        """Its lines, with those that a backslash continues made one; prompts do not matter."""
        return re.sub(r"\\\n(> )?\s*", "", "\n".join(self.lines)).splitlines()


def found(folder: Path, place: GuideTarget) -> list[Guide]:
    """The guides of a place anywhere below ``folder``, by path.

    Raises:
        GuideError: a page that is marked to run cannot.
    """
    pages = (guide(path) for path in sorted(folder.rglob("*.md")))
    return [page for page in pages if page is not None and page.place is place]


def guide(path: Path) -> Guide | None:
    """The guide that a page is; None where it does not say that it runs.

    Raises:
        GuideError: an unknown place, output before any command, or nothing to run.
    """
    text = path.read_text()
    place = _PLACE.search(text)
    if place is None:
        return None
    if place[1] not in list(GuideTarget):
        raise GuideError(f"{path}: runs on {place[1]!r}, not on one of {', '.join(GuideTarget)}")
    differing = _differing(path, text)
    steps = tuple(
        step if isinstance(step, File) else _elsewhere(step, differing)
        for fence in fences(path, text)
        for step in _steps(path, fence)
    )
    if not any(isinstance(step, Command) for step in steps):
        raise GuideError(f"{path}: is marked to run and has no command")
    return Guide(path, GuideTarget(place[1]), steps)


def _differing(path: Path, text: str) -> dict[str, str]:
    """What outputs show -> the same with ``...`` for what differs, the longest first.

    Raises:
        GuideError: the page does not show it, or nothing of it differs.
    """
    found = {}
    for line in sorted(_DIFFERS.findall(text), key=len, reverse=True):
        shown = _PART.sub(r"\1", line)
        if shown == line or shown not in _DIFFERS.sub("", text):
            raise GuideError(f"{path}: {line!r} has nothing in brackets, or no output shows it")
        found[shown] = _PART.sub(ANY, line)
    return found


def _elsewhere(command: Command, differing: Mapping[str, str]) -> Command:
    lines = command.expected
    for shown, anywhere in differing.items():
        lines = tuple(line.replace(shown, anywhere) for line in lines)
    return replace(command, expected=lines)


def fences(path: Path, text: str) -> Iterator[Fence]:
    """The fenced blocks of a page, in its order.

    Raises:
        GuideError: one is not closed.
    """
    lines = enumerate(text.splitlines(), 1)
    for number, line in lines:
        opened = _OPEN.match(line)
        if opened is None:
            continue
        inside = []
        for _, body in lines:
            if body == _CLOSE:
                break
            inside.append(body)
        else:
            raise GuideError(f"{path}:{number}: the fence is not closed")
        title = _TITLE.search(opened["more"] or "")
        yield Fence(opened["language"], title and title[1], tuple(inside), number)


def _steps(path: Path, fence: Fence) -> Iterator[File | Command]:
    if fence.title is not None:
        yield File(fence.title, "".join(f"{line}\n" for line in fence.lines), fence.line)
    elif fence.language == "console":
        yield from _commands(path, fence)


def _commands(path: Path, fence: Fence) -> Iterator[Command]:
    starts = [at for at, line in enumerate(fence.lines) if line.startswith(_COMMAND)]
    if not starts or starts[0] != 0:
        raise GuideError(f"{path}:{fence.line + 1}: a console begins with a command, '$ ...'")
    for start, end in zip(starts, [*starts[1:], len(fence.lines)], strict=True):
        yield _command(fence.lines[start:end], fence.line + 1 + start)


def _command(lines: tuple[str, ...], number: int) -> Command:
    typed = [lines[0].removeprefix(_COMMAND)]
    rest = list(lines[1:])
    while rest and rest[0].startswith(_MORE):
        typed.append(rest.pop(0).removeprefix(_MORE))
    status = _EXIT.search(typed[-1])
    typed[-1] = _EXIT.sub("", typed[-1])
    return Command("\n".join(typed), tuple(rest), int(status[1]) if status else 0, number)
