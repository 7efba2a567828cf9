"""Runs the steps of a guide as its reader would, in a folder of its own.

Each command is a shell of its own in that folder, with the files the page has saved; its output
is what a terminal shows, both streams in one. A command that only looks (`kubectl get`,
`gpushare inspect` and their like) is run again until it shows what the page shows, as a person
would, for as long as ``patience_s``; all others are run once. Nothing is cleaned up: a guide does
that itself.
"""

import os
import re
import signal
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from guides.blocks import Command, File, Guide
from guides.matching import matches
from host.waiting import DeadlineError, until

COMMAND_SECONDS = 150
"""Longer than any wait that a page requires of its reader."""
LATE = 124
"""What `timeout` of coreutils returns for a command that it ended."""
_LOOKS = re.compile(
    r"(kubectl (get|describe|logs|top|inspect|auth)"
    r"|gpushare (inspect|gpu|top|explain|whatif|defrag|doctor|topology|serve (list|get))) "
)


class StepError(AssertionError):
    """A command did not do what its page specifies; shows the page's place, both outputs."""


@dataclass(frozen=True)
class GuideSession:
    """A terminal.

    Attributes:
        folder: it stands in; files are saved there.
        environment: of its commands, whole.
        stands_for: words of pages that name what a reader has, such as an image -> what stands for
            it here. They are put in place in commands and files, and back in outputs.
        patience_s: how long a command that only looks may show something else.
        limit_s: how long one command may take.
    """

    folder: Path
    environment: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    stands_for: Mapping[str, str] = field(default_factory=dict)
    patience_s: float = 0
    limit_s: float = COMMAND_SECONDS

    def follow(self, guide: Guide) -> None:
        """Every step of the page.

        Raises:
            StepError: at the first command that does otherwise than the page specifies.
        """
        for step in guide.steps:
            if isinstance(step, File):
                (self.folder / step.name).write_text(self._here(step.text))
            else:
                self._command(guide, step)

    def _command(self, guide: Guide, command: Command) -> None:
        outcomes: list[tuple[int, str]] = []

        def as_the_page_says() -> bool:
            outcomes[:] = [self._shell(command.text)]
            ((status, output),) = outcomes
            return status == command.status and matches(command.expected, output)

        patience = self.patience_s if _LOOKS.match(f"{command.text} ") else 0
        try:
            until(command.text, as_the_page_says, seconds=patience)
        except DeadlineError as error:
            ((status, output),) = outcomes
            raise StepError(_report(guide, command, status=status, output=output)) from error

    def _shell(self, text: str) -> tuple[int, str]:
        """Exit status and output; a command that does not end is ended, and counts as 124."""
        with subprocess.Popen(
            ["bash", "-o", "pipefail", "-c", self._here(text)],
            cwd=self.folder,
            env=dict(self.environment),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        ) as shell:
            try:
                output, _ = shell.communicate(timeout=self.limit_s)
            except subprocess.TimeoutExpired:
                os.killpg(shell.pid, signal.SIGKILL)
                output, _ = shell.communicate()
                return LATE, self._there(output)
        return shell.returncode, self._there(output)

    def _here(self, text: str) -> str:
        for word, thing in self.stands_for.items():
            text = text.replace(word, thing)
        return text

    def _there(self, text: str) -> str:
        for word, thing in self.stands_for.items():
            text = text.replace(thing, word)
        return text


def _report(guide: Guide, command: Command, *, status: int, output: str) -> str:
    expected = "\n".join(command.expected) or "(anything)"
    return (
        f"{guide.path}:{command.line}: $ {command.text}\n"
        f"--- the page specifies (exit {command.status})\n{expected}\n"
        f"--- what came (exit {status})\n{output}"
    )
