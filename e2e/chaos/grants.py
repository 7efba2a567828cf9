"""What the containers of a node really have: devices and environment, in a file of the kubelet.

The file is kubelet's checkpoint. A container survives the death of its kubelet, so the file is
correct at every moment, also while no kubelet runs.
"""

import os
from pathlib import Path

import msgspec

Ids = dict[str, list[str]]


class ContainerGrant(msgspec.Struct):
    """Device IDs of one container by resource, and the environment that the plugin answered."""

    ids: Ids = {}
    envs: dict[str, str] = {}


class GrantedPod(msgspec.Struct):
    """One pod that holds devices.

    Attributes:
        started: time at which all containers had their devices; 0 before.
        run_seconds: the pod ends by itself this many seconds after its start; 0: never.
    """

    namespace: str
    name: str
    containers: dict[str, ContainerGrant] = {}
    started: float = 0.0
    run_seconds: float = 0.0


class NodeGrants(msgspec.Struct):
    """All pods of a node that hold devices, by UID, and the resources that plugins registered."""

    pods: dict[str, GrantedPod] = {}
    resources: list[str] = []

    @classmethod
    def read(cls, file: Path) -> "NodeGrants":
        """As the file has them; none where there is no file."""
        if not file.exists():
            return cls()
        return _DECODER.decode(file.read_bytes())

    def write(self, file: Path) -> None:
        """Replace the file at once, so that a reader never sees half of it."""
        fresh = file.with_suffix(".new")
        fresh.write_bytes(msgspec.json.encode(self))
        os.replace(fresh, file)  # noqa: PTH105 - the atomic rename is the point

    def in_use(self, resource: str) -> set[str]:
        """Device IDs of a resource that containers hold."""
        return {
            one
            for pod in self.pods.values()
            for container in pod.containers.values()
            for one in container.ids.get(resource, ())
        }


_DECODER = msgspec.json.Decoder(NodeGrants)
