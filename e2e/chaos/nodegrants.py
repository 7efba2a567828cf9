"""What the containers of a kind node really have, from its processes and kubelet's checkpoint.

The processes are read before the checkpoint. So each device of a container that runs was allocated
before, and a pod whose containers have ended is not counted, whatever the checkpoint still has.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

import msgspec

from chaos.grants import ContainerGrant, GrantedPod, Ids, NodeGrants

CONTAINER: Final = "CHAOS_CONTAINER"
"""Variable of each container of the load: its name."""
CHECKPOINT: Final = "/var/lib/kubelet/device-plugins/kubelet_internal_checkpoint"
SCRIPT: Final = f"""\
for process in $(grep -lz '^{CONTAINER}=' /proc/[0-9]*/environ 2>/dev/null); do
  cgroup=$(cat "${{process%environ}}cgroup" 2>/dev/null) || continue
  environ=$(tr '\\0\\n' '\\n ' < "$process" 2>/dev/null) || continue
  printf 'process %s\\n%s\\n' "$cgroup" "$environ"
done
echo checkpoint
cat {CHECKPOINT} 2>/dev/null || true
"""
"""Prints each process of the load with its cgroup and environment, then the checkpoint."""

_UID: Final = re.compile(r"pod([0-9a-f]{8}[-_][0-9a-f_-]{27})")


class _Process(NamedTuple):
    uid: str
    environ: Mapping[str, str]


def decode(text: str) -> NodeGrants:
    """What :data:`SCRIPT` printed."""
    processes, _, checkpoint = text.rpartition("checkpoint\n")
    ids = _devices(checkpoint)
    pods: dict[str, GrantedPod] = {}
    for uid, environ in _processes(processes):
        pod = pods.setdefault(uid, GrantedPod("default", environ["HOSTNAME"], started=1.0))
        name = environ[CONTAINER]
        pod.containers[name] = ContainerGrant(ids.get((uid, name), {}), dict(environ))
    return NodeGrants(pods)


def _processes(text: str) -> Iterator[_Process]:
    for part in re.split(r"^process ", text, flags=re.MULTILINE):
        cgroup, _, lines = part.partition("\n")
        environ = dict(line.split("=", 1) for line in lines.splitlines() if "=" in line)
        if (found := _UID.search(cgroup)) and {CONTAINER, "HOSTNAME"} <= environ.keys():
            yield _Process(found[1].replace("_", "-"), environ)


def _devices(checkpoint: str) -> dict[tuple[str, str], Ids]:
    """Device IDs of each container, by UID of the pod and name; none without a checkpoint."""
    entries: list[dict[str, Any]] = []
    if checkpoint.strip():
        entries = msgspec.json.decode(checkpoint)["Data"]["PodDeviceEntries"] or []
    found: dict[tuple[str, str], Ids] = {}
    for entry in entries:
        ids = [one for some in entry["DeviceIDs"].values() for one in some]
        key = entry["PodUID"], entry["ContainerName"]
        found.setdefault(key, {})[entry["ResourceName"]] = ids
    return found
