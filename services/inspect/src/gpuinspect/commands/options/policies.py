"""The flag ``--policy`` of the commands that take placements again."""

from typing import Annotated

import typer

from gpucore.wire.names import POLICY_NAMES
from gpuinspect.commands.options import answers

PolicyName = Annotated[
    str,
    typer.Option(
        help=f"one of {', '.join(POLICY_NAMES)}; default: what the cluster's extender uses",
        metavar="NAME",
        autocompletion=answers.one_of(POLICY_NAMES),
    ),
]


def check_policy(name: str) -> None:
    """Refuse the name of a policy that does not exist."""
    if name and name not in POLICY_NAMES:
        raise typer.BadParameter(f"{name!r} is none of {', '.join(POLICY_NAMES)}")
