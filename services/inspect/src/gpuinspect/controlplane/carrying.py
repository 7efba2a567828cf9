"""Applies a plan: writes files, waits, then either removes backups or restores everything."""

from collections.abc import Callable

from gpuinspect.controlplane.files import Files
from gpuinspect.controlplane.plan import ChangePlan, FileChange
from gpuinspect.errors import InspectError

Wait = Callable[[str], None]
"""Returns when kube-scheduler runs with this ``--config``; raises an InspectError otherwise."""


def carry_out(plan: ChangePlan, files: Files, wait: Wait, *, before: str) -> None:
    """Make all changes and wait for the scheduler; on failure put everything back and wait again.

    Args:
        plan: what to do.
        files: of the node.
        wait: for the scheduler.
        before: the ``--config`` that gpushare wrote for the scheduler before; empty where none.

    Raises:
        InspectError: it did not work; the manifest is as it was before.
    """
    done: list[FileChange] = []
    try:
        for change in plan.changes:
            files.write(change)
            done.append(change)
        wait(plan.config)
    except BaseException:  # an interrupted command must not leave a broken scheduler either
        for change in reversed(done):
            files.write(FileChange(change.path, change.after, change.before))
        if done:
            _again(wait, before)
        raise
    files.tidy(keep=plan.config)


def _again(wait: Wait, config: str) -> None:
    """Wait for the restored scheduler; its own failure is worse and is reported first."""
    try:
        wait(config)
    except InspectError as error:
        raise type(error)(f"the manifest was restored, but {error}") from error
