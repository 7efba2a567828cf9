"""Letters of flags with an equals sign before their value, as kubectl takes them: ``-n=team``.

The parser would give the command the value ``=team``, and it would answer for such a namespace.
"""

from collections.abc import Collection, Iterator, Sequence
from typing import Any


def with_equals(command: Any) -> Any:
    """The command, or all commands of a group, which then take ``-n=team`` for ``-n team``."""
    for each in getattr(command, "commands", {}).values():
        with_equals(each)
    parse = command.parse_args

    def parse_args(ctx: Any, args: Sequence[str]) -> Any:
        options = [each for each in command.params if each.param_type_name == "option"]
        valued = [each for each in options if not (each.is_flag or each.count)]
        letters = {name for each in valued for name in each.opts if len(name) == len("-n")}
        return parse(ctx, list(_parted(args, letters)))

    command.parse_args = parse_args
    return command


def _parted(args: Sequence[str], letters: Collection[str]) -> Iterator[str]:
    """The arguments, with ``-n=team`` as two; behind ``--`` there are no flags."""
    flags = args.index("--") if "--" in args else len(args)
    for number, each in enumerate(args):
        letter, sign, value = each.partition("=")
        yield from (letter, value) if sign and letter in letters and number < flags else (each,)
