"""A node whose pods the usage recorder samples, with figures that a test sets."""

import json
from typing import Any

from fakedriver import t4

from gpucore.node.allocation.device_ids import Resource
from gpucore.node.allocation.holdings import Held
from gpucore.node.grant import GrantPolicy
from gpucore.node.isolation.attribution import UNKNOWN, Attribution
from gpucore.sizing.usage_history import UsageHistory, WorkloadKey
from gpucore.units import GIB, NodeName, PodUid
from gpucore.wire.pod.spec import Container, Pod
from gpudeviceplugin.gpus.devices import NodeHardware, Usage
from gpudeviceplugin.gpus.inventory import inventory_of
from gpudeviceplugin.node.current_use import CurrentUse
from gpudeviceplugin.node.pod_starts import PodControllers
from gpudeviceplugin.node.recorder import UsageRecorder
from gpudeviceplugin.state import NodeState

GI = 1 << 30
CREATED = "2026-01-01T00:00:00Z"
NOW = 1_767_225_600.0 + 3600
"""An hour after :data:`CREATED`."""


def pod(name: str, *containers: str, owner: str = "", **more: Any) -> Pod:
    """A running pod."""
    boxes = tuple(Container(each, {"aliyun.com/gpu-mem": "2"}) for each in containers or ("main",))
    more = {"phase": "Running", "creation": CREATED, **more}
    return Pod(
        PodUid(f"uid-{name}"), "team", name, NodeName("n1"), containers=boxes, owner=owner, **more
    )


class World:
    """A node with two GPUs, whose figures a test sets."""

    def __init__(self) -> None:
        self.now = NOW
        self.state = NodeState(GrantPolicy())
        self.state.equip(inventory_of(NodeHardware("535.1", (t4(0), t4(1))), GIB))
        self.use = CurrentUse(self.state, "n1", lambda: self.now)
        self.controllers = PodControllers()
        self.recorder = self.started()

    def started(self) -> UsageRecorder:
        """The recorder of a plugin that has just started."""
        return UsageRecorder(
            self.state,
            self.use,
            self.controllers,
            node="n1",
            file=None,
            interval_seconds=15,
            clock=lambda: self.now,
        )

    def holds(
        self, *names: str, gpus: tuple[int, ...] = (0,), containers: tuple[str, ...] = ("main",)
    ) -> None:
        """Kubelet's account: two units of each GPU for every container of these pods."""
        table, held, first = self.state.matcher.tables[Resource.MEM], [], 0
        for name in names:
            rows = {}
            for container in containers:
                ids = [one for gpu in gpus for one in table.ids[gpu][first : first + 2]]  # type: ignore[index]
                rows[container] = {Resource.MEM: tuple(ids)}
                first += 2
            held.append(Held("team", name, rows))
        self.state.sync_from_kubelet(held, requested_at=self.state.settled_turn())

    def uses(
        self, gpu: int = 0, *, unattributed: int = 0, work: Any = UNKNOWN, **pods: int
    ) -> None:
        """The figures of a GPU, by name of the pod."""
        found = {PodUid(f"uid-{name}"): size for name, size in pods.items()}
        total = sum(pods.values()) + unattributed
        self.use.measured(
            self.state.inventory.gpus[gpu],
            Usage(16 * GI, total, ()),
            Attribution(found, unattributed),
            work=work,
        )

    def sampled(self, seconds: float = 15.0) -> None:
        """Time passes, and one sample is taken."""
        self.now += seconds
        self.recorder.sample()

    def history(self, kind: str = "Pod", name: str = "a", container: str = "main") -> UsageHistory:
        """The history of a workload."""
        found = self.recorder.histories.get(WorkloadKey("team", kind, name, container))
        assert found is not None, [each.key for each in self.recorder.histories.all()]
        return found

    @property
    def workloads(self) -> list[tuple[str, str, str]]:
        """Kind, name and container of all histories."""
        return [(h.key.kind, h.key.name, h.key.container) for h in self.recorder.histories.all()]


def owned(uid: str, kind: str, name: str) -> bytes:
    """A list with one pod that has a controller."""
    owner = {"kind": kind, "name": name, "controller": True, "uid": "o"}
    return json.dumps({"items": [{"metadata": {"uid": uid, "ownerReferences": [owner]}}]}).encode()


def ended(at: str, container: str = "main") -> bytes:
    """A line of a watch: a container ended without GPU memory and was started again."""
    end = {"exitCode": 1, "message": "CUDA out of memory", "finishedAt": at}
    box = {"name": container, "lastState": {"terminated": end}}
    return json.dumps({"object": {"status": {"containerStatuses": [box]}}}).encode()


def restarted(at: str, container: str = "main", count: int = 1) -> bytes:
    """A line of a watch: a container runs again."""
    box = {"name": container, "restartCount": count, "state": {"running": {"startedAt": at}}}
    return json.dumps({"object": {"status": {"containerStatuses": [box]}}}).encode()
