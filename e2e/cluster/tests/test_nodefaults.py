"""A node that does not come up is explained by the line that its own programs logged."""

import pytest

from cluster import nodefaults
from cluster.nodefaults import NodeFaultError
from host.testing.fakeprograms import FakePrograms

WATCHER = "failed to create fsnotify watcher: too many open files"
NO_CRI = "rpc error: code = Unimplemented desc = unknown service runtime.v1.RuntimeService"
RUNS = '{"Running": true, "ExitCode": 0}'
KILLED = '{"Running": false, "ExitCode": 137, "OOMKilled": true}'


def node(programs: FakePrograms, *log: str, state: str = RUNS) -> None:
    """The node of a fake engine, with what its containerd and kubelet logged."""
    lines = "; ".join(f"echo '{line}'" for line in log) or ":"
    programs.add("docker", f"case \"$1\" in inspect) echo '{state}' ;; exec) {lines} ;; esac")


@pytest.mark.parametrize(
    ("line", "meaning"),
    [
        (WATCHER, "too few inotify instances"),
        ("write /var/lib/x: no space left on device", "a disk is full"),
        (NO_CRI, "containerd has not loaded its CRI plugin"),
        ("running with swap on is not supported, please disable swap!", "refuses swap"),
    ],
)
def test_the_cause_is_named_with_its_line(programs: FakePrograms, line: str, meaning: str) -> None:
    node(programs, "Started containerd", line, "Started kubelet")
    found = nodefaults.fault("worker")
    assert meaning in found
    assert found.startswith("node worker: ")
    assert found.endswith(f"Its log: {line}")


def test_what_caused_the_rest_is_named_first(programs: FakePrograms) -> None:
    """A containerd without watcher has no CRI plugin, which kubelet then complains of."""
    node(programs, WATCHER, NO_CRI, NO_CRI)
    assert WATCHER in nodefaults.fault("worker")


def test_a_stopped_node_is_named_with_its_status(programs: FakePrograms) -> None:
    node(programs, state=KILLED)
    found = nodefaults.fault("worker")
    assert "has stopped (exit status 137, ended for lack of memory)" in found


def test_a_node_that_is_gone_is_named(programs: FakePrograms) -> None:
    programs.add("docker", "exit 1")
    assert nodefaults.fault("worker") == "node worker: its container is gone"


def test_a_wait_ends_at_what_never_passes(programs: FakePrograms) -> None:
    """What may pass by itself does not end it."""
    node(programs, NO_CRI)
    nodefaults.end_if_final(["worker"])
    node(programs, NO_CRI, WATCHER)
    with pytest.raises(NodeFaultError, match="make preflight"):
        nodefaults.end_if_final(["worker"])


def test_a_log_without_a_cause_is_stated(programs: FakePrograms) -> None:
    node(programs, "Started kubelet")
    assert nodefaults.report(["one", "two"]) == "no log of its nodes names a cause"
