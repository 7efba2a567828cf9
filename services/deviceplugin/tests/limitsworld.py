"""A node with two GPUs in mode driver, for tests of memory limits: pods, cgroups, what is set."""

from pathlib import Path

from fakedriver import FakeDriver, hardware_of, t4
from msgspec.structs import replace

from gpucore.model import IsolationMode
from gpucore.node.allocation.device_ids import Resource
from gpucore.node.allocation.holdings import Held
from gpucore.node.grant import GrantPolicy
from gpucore.node.isolation.driver_limits import NO_LIMIT, MemoryLimit
from gpucore.units import GIB, NodeName, PodUid
from gpucore.wire.pod.spec import Container, Pod
from gpudeviceplugin.cluster.events import Subject
from gpudeviceplugin.gpus.driver import PatientDriver
from gpudeviceplugin.gpus.inventory import inventory_of
from gpudeviceplugin.isolation.cgroup_tree import CgroupTree
from gpudeviceplugin.isolation.driver_limits import DriverLimits
from gpudeviceplugin.state import NodeState

FIRST, SECOND = t4(0).uuid, t4(1).uuid
BYTES = 1 << 30


def share(units: int) -> MemoryLimit:
    """What is in force for so many units of 1 GiB."""
    return MemoryLimit(units * BYTES, units * BYTES)


class World:
    """A node with two GPUs in mode driver; pods have shares as a test specifies."""

    def __init__(self, root: Path) -> None:
        self.root = root
        (root / "kubepods/burstable").mkdir(parents=True)
        (root / "cgroup.controllers").touch()
        self.driver = FakeDriver(t4(0), t4(1))
        self.state = NodeState(GrantPolicy())
        inventory = inventory_of(hardware_of(self.driver), GIB)
        gpus = tuple(replace(gpu, isolation=IsolationMode.DRIVER) for gpu in inventory.gpus)
        self.state.equip(replace(inventory, gpus=gpus))
        self.events: list[tuple[str, str, str]] = []
        self.kinds: list[str] = []
        self.subjects: list[Subject] = []
        self.changes = 0
        self.limits = self.restarted()
        self._held: dict[str, dict[int, int]] = {}

    def restarted(self) -> DriverLimits:
        """The limits of a new process, without the state of the earlier one."""
        tree = CgroupTree(self.root, "")
        patient = PatientDriver(self.driver)
        self.limits = DriverLimits(self.state, patient, self, tree, interval_seconds=60.0)  # type: ignore[arg-type]
        self.limits.on_change = self._changed
        self.limits.want([FIRST, SECOND])
        return self.limits

    def _changed(self) -> None:
        self.changes += 1

    async def event(self, subject: Subject, reason: str, message: str, *, kind: str) -> None:
        """As the event recorder's."""
        self.kinds.append(kind)
        self.subjects.append(subject)
        self.events.append((subject.name, reason, message))

    def pod(self, name: str, *, phase: str = "Running", cgroup: bool = True, **units: int) -> None:
        """A pod with units of GPUs (``gpu0=3``); kubelet has made its cgroup."""
        boxes = (Container("c0", {"aliyun.com/gpu-mem": str(sum(units.values()))}),)
        uid = PodUid(f"uid-{name}")
        pod = Pod(uid, "team", name, NodeName("n1"), phase, containers=boxes)
        self.state.on_update(pod, b"{}")
        self._held[name] = {int(key[3:]): count for key, count in units.items()}
        if cgroup:
            self.cgroup(name).mkdir(exist_ok=True)
        self._believe()

    def annotate(self, name: str, **annotations: str) -> None:
        """The pod's annotations are these from now on."""
        pod = self.state.pods[PodUid(f"uid-{name}")]
        self.state.on_update(replace(pod, annotations=annotations), b"{}")
        self.limits.seen(self.state.pods[pod.uid])

    def uses(self, name: str, units: int, uuid: str = FIRST) -> None:
        """Memory in use, as the driver reports it."""
        self.driver.cgroup_use[uuid, str(self.cgroup(name))] = units * BYTES

    def gone(self, name: str, *, cgroup: bool = False) -> None:
        """The pod was deleted; its cgroup may still be there."""
        uid = PodUid(f"uid-{name}")
        self.state.on_delete(self.state.pods[uid])
        del self._held[name]
        if not cgroup:
            self.cgroup(name).rmdir()
        self._believe()

    def _believe(self) -> None:
        ids, matcher = self.state.matcher.tables[Resource.MEM].ids, self.state.matcher
        free = {gpu.index: list(ids[gpu.index]) for gpu in self.state.inventory.gpus}
        held = []
        for name, counts in self._held.items():
            taken = [free[device].pop() for device, count in counts.items() for _ in range(count)]  # type: ignore[index]
            held.append(Held("team", name, {"c0": {Resource.MEM: tuple(taken)}}))
        self.state.sync_from_kubelet(held, requested_at=matcher.holdings.turn)

    def cgroup(self, name: str) -> Path:
        """Of a burstable pod, with kubelet's driver cgroupfs."""
        return self.root / f"kubepods/burstable/poduid-{name}"

    def in_force(self, name: str, uuid: str = FIRST) -> MemoryLimit:
        return self.driver.limits.get((uuid, str(self.cgroup(name))), NO_LIMIT)
