"""Carrying out a plan: files, then patience, then either tidying or all back as it was."""

from collections.abc import Callable

from gpuinspect.controlplane.files import Files
from gpuinspect.controlplane.plan import Change, Plan
from gpuinspect.errors import InspectError

Wait = Callable[[str], None]
"""Returns when kube-scheduler runs with this ``--config``; raises an InspectError otherwise."""


def carry_out(plan: Plan, files: Files, wait: Wait, *, before: str) -> None:
    """Make all changes and wait for the scheduler; on failure put everything back and wait again.

    Args:
        plan: what to do.
        files: of the node.
        wait: for the scheduler.
        before: the ``--config`` of ours that the scheduler had; empty where none.

    Raises:
        InspectError: it did not work; the manifest is as it was before.
    """
    done: list[Change] = []
    try:
        for change in plan.changes:
            files.write(change)
            done.append(change)
        wait(plan.config)
    except BaseException:  # an interrupted command must not leave a broken scheduler either
        for change in reversed(done):
            files.write(Change(change.path, change.after, change.before))
        if done:
            _again(wait, before)
        raise
    files.tidy(keep=plan.config)


def _again(wait: Wait, config: str) -> None:
    """Wait for what was put back; its own failure is the worse news and goes first."""
    try:
        wait(config)
    except InspectError as error:
        raise type(error)(f"the manifest was put back, but {error}") from error
