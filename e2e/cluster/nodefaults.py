"""Why a node of a kind cluster does not come up, by the lines that its own programs logged.

A wait that ends without a word of the cause costs whoever reads it an hour. Some causes never go
away by waiting; the wait ends when the log shows one of them.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass

from host.commands import run_command
from host.errors import SetupError

_LOG_LINES = "3000"
_LONGEST_LINE = 300


class NodeFaultError(SetupError):
    """A node cannot come up; the sentence names the cause and the line of its log."""


@dataclass(frozen=True)
class Cause:
    """A text in the log of a node, and what it means.

    Attributes:
        final: waiting does not mend it.
    """

    text: str
    meaning: str
    final: bool = False


CAUSES = (
    Cause(
        "too many open files",
        "the machine has too few inotify instances or open files: `make preflight` shows which",
        final=True,
    ),
    Cause("no space left on device", "a disk is full: `make preflight` shows which", final=True),
    Cause("running with swap on is not supported", "kubelet refuses swap: swapoff -a", final=True),
    Cause(
        "configured to not run on a host using cgroup v1",
        "kubelet refuses cgroup v1: its configuration lacks failCgroupV1: false",
        final=True,
    ),
    Cause("unknown service runtime.v1", "containerd has not loaded its CRI plugin"),
    Cause("out of memory", "a program was ended for lack of memory"),
    Cause("connection refused", "a program that the node needs does not answer"),
    Cause("failed to run kubelet", "kubelet ends right after its start"),
)


def fault(node: str, *, final_only: bool = False) -> str:
    """The cause, with its log line, as a sentence; empty where the log names none.

    Args:
        node: name of its container.
        final_only: leave out what may pass by itself.
    """
    stopped = _stopped(node)
    if stopped:
        return stopped
    causes = [cause for cause in CAUSES if cause.final or not final_only]
    return _named(node, _log(node), causes)


def end_if_final(nodes: Iterable[str]) -> None:
    """End a wait that cannot succeed.

    Raises:
        NodeFaultError: the log of one of the nodes shows a cause that does not pass.
    """
    for node in nodes:
        found = fault(node, final_only=True)
        if found:
            raise NodeFaultError(found)


def report(nodes: Iterable[str]) -> str:
    """A line for each node with a fault; states so where no log names a cause."""
    found = [cause for node in nodes if (cause := fault(node))]
    return "\n  ".join(found) or "no log of its nodes names a cause"


def _named(node: str, log: str, causes: Iterable[Cause]) -> str:
    lines = log.splitlines()
    for cause in causes:
        text = cause.text.lower()
        hits = [line for line in lines if text in line.lower()]
        if hits:
            return f"node {node}: {cause.meaning}. Its log: {hits[-1].strip()[:_LONGEST_LINE]}"
    return ""


def _stopped(node: str) -> str:
    try:
        text = run_command(["docker", "inspect", "--format", "{{json .State}}", node], timeout_s=30)
    except SetupError:
        return f"node {node}: its container is gone"
    state = json.loads(text)
    if state["Running"]:
        return ""
    killed = ", ended for lack of memory" if state.get("OOMKilled") else ""
    return f"node {node}: its container has stopped (exit status {state['ExitCode']}{killed})"


def _log(node: str) -> str:
    """What containerd and kubelet logged since the node was started; empty where unreadable."""
    units = ["-u", "containerd", "-u", "kubelet"]
    read = ["journalctl", "--boot", "--no-pager", "--output=cat", "--lines", _LOG_LINES, *units]
    try:
        return run_command(["docker", "exec", node, *read], timeout_s=30)
    except SetupError:
        return ""
