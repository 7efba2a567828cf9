"""Letters of flags with an equals sign before their value, as kubectl takes them: ``-n=team``.

The parser would give the command the value ``=team``, and it would answer for such a namespace.
"""

from typing import Any


def with_equals(command: Any) -> Any:
    """The command, or all commands of a group, which then take ``-n=team`` for ``-n team``."""
    for each in getattr(command, "commands", {}).values():
        with_equals(each)
    make = command.make_parser

    def make_parser(ctx: Any) -> Any:
        parser = make(ctx)
        letters = parser._short_opt.items()  # noqa: SLF001 - there is no other way
        valued = {name: option for name, option in letters if option.takes_value}
        parser._long_opt.update(valued)  # noqa: SLF001 - of these the sign is cut off
        return parser

    command.make_parser = make_parser
    return command
