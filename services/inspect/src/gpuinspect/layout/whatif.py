"""The answer of ``gpushare whatif`` for people."""

from collections.abc import Sequence

from gpucore.explain.answers import Answer
from gpucore.explain.groups import figures
from gpucore.explain.whatif_documents import placed_text
from gpucore.model import Code
from gpucore.units import counted
from gpuinspect.terminal.output import align


def whatif(answers: Sequence[Answer], *, headers: bool = True) -> str:
    """A line a pod with its place, or with why it has none; then the count."""
    rows = "".join(_row(answer) for answer in answers)
    if not headers:
        return align(rows)
    fitting = sum(answer.fits for answer in answers)
    return align(f"POD\tNODE\tWHERE\n{rows}") + f"{fitting} of {len(answers)} pods fit\n"


def _row(answer: Answer) -> str:
    placement = answer.outcome.placement
    if placement is not None:
        return f"{answer.outcome.name}\t{placement.node}\t{placed_text(answer)}\n"
    if answer.outcome.node:
        reasons = "; ".join(map(figures, answer.groups))
        return f"{answer.outcome.name}\t-\tdoes not fit node {answer.outcome.node}: {reasons}\n"
    return f"{answer.outcome.name}\t-\tfits no node: {why(answer)}\n"


def why(answer: Answer) -> str:
    """The reasons of all nodes, counted; nodes without GPUs only where there are no others."""
    telling = [group for group in answer.groups if group.code is not Code.NOT_SHARED]
    groups = telling or answer.groups
    reasons = (f"{counted(len(group.nodes), 'node')}: {figures(group)}" for group in groups)
    return "; ".join(reasons) or "the cluster has no nodes"
