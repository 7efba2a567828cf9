"""GPUs and pods for the tests of a node's decisions."""

from collections.abc import Mapping, Sequence
from typing import Any

from gpucore.model import Gpu, Inventory
from gpucore.node.allocation.device_ids import Resource
from gpucore.node.allocation.expected import Expected
from gpucore.node.allocation.matcher import AllocationMatcher, PreferenceRequest
from gpucore.node.allocation.reading import expected_of
from gpucore.units import GpuIndex, GpuUuid, NodeName, PodUid
from gpucore.wire.names import DEFAULT_NAMES
from gpucore.wire.pod.spec import Container, Pod

Asks = Mapping[str, int | str]


def make_gpu(index: int, units: int = 15, **more: Any) -> Gpu:
    """A GPU of so many GiB."""
    uuid = GpuUuid(f"GPU-00000000-0000-0000-0000-{index:012}")
    return Gpu(GpuIndex(index), uuid, units, memory_mib=units * 1024 + 770, **more)


def machine(*units: int) -> Inventory:
    """GPUs of these sizes."""
    return Inventory(gpus=tuple(make_gpu(index, size) for index, size in enumerate(units)))


def plan(index: int, amount: int = 0) -> dict[str, str]:
    """The first generation's annotations for a GPU."""
    return {
        DEFAULT_NAMES.mem_idx: str(index),
        DEFAULT_NAMES.mem_pod: str(amount),
        DEFAULT_NAMES.mem_assigned: "false",
        DEFAULT_NAMES.mem_assume_time: "17",
    }


def make_pod(
    name: str,
    *requests: Asks,
    inits: Sequence[Asks] = (),
    sidecars: Sequence[Asks] = (),
    annotations: Mapping[str, str] | None = None,
    labels: Mapping[str, str] | None = None,
    phase: str = "Pending",
    created: int = 0,
    uid: str = "",
) -> Pod:
    """A pod bound to the node."""
    return Pod(
        uid=PodUid(uid or f"uid-{name}"),
        namespace="default",
        name=name,
        node=NodeName("n1"),
        phase=phase,
        annotations=dict(annotations or {}),
        labels=dict(labels or {}),
        containers=tuple(_container(f"c{i}", ask) for i, ask in enumerate(requests)),
        init_containers=(
            *(_container(f"i{i}", ask) for i, ask in enumerate(inits)),
            *(_container(f"s{i}", ask, "Always") for i, ask in enumerate(sidecars)),
        ),
        creation=f"2026-01-01T00:00:{created:02}Z",
    )


def _container(name: str, ask: Asks, restart_policy: str = "") -> Container:
    limits = {f"aliyun.com/{resource}": str(amount) for resource, amount in ask.items()}
    return Container(name=name, limits=limits, restart_policy=restart_policy)


def expected(name: str, *requests: Asks, **more: Any) -> Expected:
    """What a node expects of such a pod."""
    found = expected_of(make_pod(name, *requests, **more), DEFAULT_NAMES)
    assert found is not None
    return found


class Kubelet:
    """The questions of a kubelet that takes what it is advised to take."""

    def __init__(self, matcher: AllocationMatcher) -> None:
        self.matcher = matcher
        self.used: dict[Resource, set[str]] = {each: set() for each in Resource}

    def question(
        self, resource: Resource, amount: int, required: Sequence[str] = ()
    ) -> PreferenceRequest:
        """What it would ask now."""
        free = set(self.matcher.tables[resource].owner) - self.used[resource]
        return PreferenceRequest(resource, frozenset(free | set(required)), tuple(required), amount)

    def take(
        self, amount: int, resource: Resource = Resource.MEM, required: Sequence[str] = ()
    ) -> Any:
        """Ask, take, allocate; returns what was granted, or the denial."""
        question = self.question(resource, amount, required)
        ids = self.matcher.prefer(question)
        if ids is None:
            ids = self.matcher.adopt(question)
        if not isinstance(ids, tuple):
            return ids
        granted = self.matcher.allocate(resource, ids)
        if hasattr(granted, "ids"):
            self.used[resource] |= set(ids)
        return granted


def matcher(inventory: Inventory, *pods: Expected) -> AllocationMatcher:
    """The matching state of a node with these GPUs and waiting pods."""
    made = AllocationMatcher(tuple(Resource))
    made.equip(inventory)
    for pod in pods:
        made.see(pod)
    return made
