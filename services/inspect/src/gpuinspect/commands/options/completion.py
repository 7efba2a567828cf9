"""Completion of the command line: scripts for shells, and candidates for kubectl's completion.

Shells call ``gpushare`` with an environment variable set; kubectl calls a program named
``kubectl_complete-<plugin>`` and reads one candidate a line; the last line is a directive.
"""

import sys
from enum import StrEnum
from typing import Annotated, Any, Final

import typer
from typer._completion_classes import BashComplete
from typer._completion_shared import get_completion_script

VARIABLE: Final = "_GPUSHARE_COMPLETE"
_NO_FILES: Final = ":4"  # the directive ShellCompDirectiveNoFileComp


class Shell(StrEnum):
    """Shells a script is there for."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


def completion(shell: Annotated[Shell, typer.Argument(help="bash, zsh or fish")]) -> None:
    """Print the completion script: source <(gpushare completion bash)."""
    print(get_completion_script(prog_name="gpushare", complete_var=VARIABLE, shell=shell.value))


def candidates(command: Any, words: list[str]) -> list[str]:
    """The possible completions of the last of ``words``."""
    completer = BashComplete(command, {}, "gpushare", VARIABLE)
    *before, incomplete = words or [""]
    return [item.value for item in completer.get_completions(before, incomplete)]


def print_for_kubectl(command: Any) -> None:
    """Print the candidates for the arguments of this process, and kubectl's directive."""
    for word in candidates(command, sys.argv[1:]):
        print(word)
    print(_NO_FILES)
