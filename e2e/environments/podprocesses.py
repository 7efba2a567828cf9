"""Processes of pods as the host of a node knows them."""

from environments.case import Case
from environments.kind import KindEnvironment


def first_pid(environment: KindEnvironment, case: Case, name: str) -> int:
    """The lowest process ID of a running pod, in the PID namespace of its node."""
    pod = case.get(name)
    uid = pod["metadata"]["uid"]
    either = f"{uid}|{uid.replace('-', '_')}"
    found = environment.on_node(
        pod["spec"]["nodeName"], f"grep -lE '{either}' /proc/[0-9]*/cgroup 2>/dev/null || true"
    )
    return min(int(path.split("/")[2]) for path in found.split())
