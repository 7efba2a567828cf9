"""The answer of ``gpushare whatif`` for people."""

from collections.abc import Sequence

from gpucore.explain.answers import Answer
from gpucore.explain.groups import figures
from gpucore.explain.whatif_documents import placed_text
from gpucore.model import Code
from gpucore.units import counted
from gpuinspect.terminal.output import one_line, table


def whatif(answers: Sequence[Answer], *, headers: bool = True) -> str:
    """A line a pod with its place, or with why it has none; then the count."""
    shown = table(("POD", "NODE", "WHERE"), map(_row, answers), headers=headers)
    fitting = sum(answer.fits for answer in answers)
    return f"{shown}{fitting} of {len(answers)} pods fit\n" if headers else shown


def _row(answer: Answer) -> tuple[str, ...]:
    placement = answer.outcome.placement
    where = placed_text(answer) if placement is not None else _refused(answer)
    node = placement.node if placement is not None else "-"
    return (one_line(answer.outcome.name), node, one_line(where))


def _refused(answer: Answer) -> str:
    only = answer.outcome.node
    if only:
        return f"does not fit node {only}: {'; '.join(map(figures, answer.groups))}"
    return f"fits no node: {why(answer)}"


def why(answer: Answer) -> str:
    """The reasons of all nodes, counted; nodes without GPUs only where there are no others."""
    telling = [group for group in answer.groups if group.code is not Code.NOT_SHARED]
    groups = telling or answer.groups
    reasons = (f"{counted(len(group.nodes), 'node')}: {figures(group)}" for group in groups)
    return "; ".join(reasons) or "the cluster has no nodes"
