"""Completion of the command line: scripts for shells, and candidates for kubectl's completion.

Shells call ``gpushare`` with an environment variable set; kubectl calls a program named
``kubectl_complete-<plugin>`` and reads one candidate a line; the last line is a directive.
"""

import os
import sys
from enum import StrEnum
from typing import Annotated, Any, Final

import typer
from typer._click.shell_completion import add_completion_class, split_arg_string
from typer._completion_classes import BashComplete, completion_init
from typer._completion_shared import get_completion_script

VARIABLE: Final = "_GPUSHARE_COMPLETE"
BASH: Final = """\
_gpushare_completion() {
    local IFS=$'\\n'
    COMPREPLY=( $( env COMP_LINE="${COMP_LINE:0:COMP_POINT}" _GPUSHARE_BREAKS="$COMP_WORDBREAKS" \\
                   _GPUSHARE_COMPLETE=complete_bash $1 ) )
}

complete -o default -F _gpushare_completion gpushare
"""
_NO_FILES: Final = ":4"  # the directive ShellCompDirectiveNoFileComp


class Shell(StrEnum):
    """Shells a script is there for."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


def completion(shell: Annotated[Shell, typer.Argument(help="bash, zsh or fish")]) -> None:
    """Print the completion script: source <(gpushare completion bash)."""
    if shell is Shell.BASH:
        sys.stdout.write(BASH)
        return
    print(get_completion_script(prog_name="gpushare", complete_var=VARIABLE, shell=shell.value))


class LineOfBash(BashComplete):
    """Reads the line, for bash splits words also at ``=``, ``:`` and ``@``, as in contexts."""

    def get_completion_args(self) -> tuple[list[str], str]:
        """The words before the cursor, and the one at it."""
        line = os.environ["COMP_LINE"]
        words = [*split_arg_string(line)[1:], *([""] if line[-1:].isspace() else [])]
        *before, incomplete = words or [""]
        return before, incomplete

    def complete(self) -> str:
        """The candidates without what bash keeps: all up to the last character that splits.

        Bash keeps no ``@``, which begins a word of its own.
        """
        before, incomplete = self.get_completion_args()
        typed = incomplete.partition("=")[2] if incomplete.startswith("-") else incomplete
        breaks = os.environ["_GPUSHARE_BREAKS"]
        kept = max(0, *(typed.rfind(each) + (each != "@") for each in breaks))
        return "\n".join(item.value[kept:] for item in self.get_completions(before, incomplete))


def register() -> None:
    """Make the shells known to the program that answers them."""
    completion_init()
    add_completion_class(LineOfBash, Shell.BASH.value)


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
