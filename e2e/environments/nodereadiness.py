"""Waiting for a node to be Ready, with the cause from its log where it cannot be or is not."""

import time

from cluster import nodefaults
from environments.objects import Objects
from environments.waiting import PATIENCE_SECONDS, DeadlineError, until

CHECK_SECONDS = 10.0
"""Between looks into the node's log, which take a second."""


def is_ready(node: str, objects: Objects) -> bool:
    """Whether the API server has the node as Ready."""
    conditions = objects.node(node)["status"]["conditions"]
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


def wait(node: str, objects: Objects, *, seconds: float = PATIENCE_SECONDS) -> None:
    """Return when the node is Ready.

    Raises:
        NodeFaultError: its log shows a cause that does not pass.
        DeadlineError: it is not in time; names what its log shows.
    """
    checked = time.monotonic()

    def ready() -> bool:
        nonlocal checked
        if is_ready(node, objects):
            return True
        if time.monotonic() - checked > CHECK_SECONDS:
            nodefaults.end_if_final([node])
            checked = time.monotonic()
        return False

    try:
        until(f"node {node} is Ready", ready, seconds=seconds)
    except DeadlineError as error:
        raise DeadlineError(f"{error}: {nodefaults.report([node])}") from error
