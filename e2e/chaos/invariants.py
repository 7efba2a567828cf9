"""What must hold at every moment, computed from what the containers really have."""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from chaos.grants import ContainerGrant, NodeGrants

MEM: Final = "aliyun.com/gpu-mem"
CORE: Final = "aliyun.com/gpu-core.percentage"
EXCLUSIVE: Final = "aliyun.com/gpu"
VISIBLE: Final = "NVIDIA_VISIBLE_DEVICES"
UNITS_OF_CONTAINER: Final = "ALIYUN_COM_GPU_MEM_CONTAINER"
SEPARATOR: Final = "-_-"
FULL_CORE: Final = 100

Machines = Mapping[str, Mapping[str, int]]
"""Memory units of each GPU by UUID, by node."""


class GpuUse(NamedTuple):
    """Who has what of one GPU."""

    units: dict[str, int]
    core: dict[str, int]
    exclusive: set[str]

    def faults(self, gpu: str, capacity: int) -> Iterator[str]:
        """Sentences, none if all is within the GPU's capacity."""
        if sum(self.units.values()) > capacity:
            yield f"{gpu}: {self.units} exceed {capacity} units"
        if sum(self.core.values()) > FULL_CORE:
            yield f"{gpu}: {self.core} exceed {FULL_CORE} percent"
        others = (self.units.keys() | self.core.keys() | self.exclusive) if self.exclusive else ()
        if len(others) > 1:
            yield f"{gpu}: exclusive to {sorted(self.exclusive)}, but held by {sorted(others)}"


def gpu_of(device: str) -> str:
    """UUID of the GPU that a device ID names."""
    return device.partition(SEPARATOR)[0]


def capacity_faults(grants: Mapping[str, NodeGrants], machines: Machines) -> list[str]:
    """Every GPU that is over its capacity, every device with two holders, every wrong answer."""
    return [fault for node, held in grants.items() for fault in _node(held, machines[node])]


def _node(held: NodeGrants, capacity: Mapping[str, int]) -> Iterator[str]:
    uses: dict[str, GpuUse] = defaultdict(lambda: GpuUse({}, {}, set()))
    holders: dict[tuple[str, str], str] = {}
    for pod in held.pods.values():
        for container in pod.containers.values():
            yield from _answer(pod.name, container)
            for resource, ids in container.ids.items():
                for one in ids:
                    other = holders.setdefault((resource, one), pod.name)
                    if other != pod.name:
                        yield f"{resource} {one} is held by {other} and {pod.name}"
                    _count(uses[gpu_of(one)], resource, pod.name)
    for gpu, use in uses.items():
        if gpu not in capacity:
            yield f"{gpu} is not a GPU of the node, but {use} hold it"
        else:
            yield from use.faults(gpu, capacity[gpu])


def _count(use: GpuUse, resource: str, pod: str) -> None:
    if resource == EXCLUSIVE:
        use.exclusive.add(pod)
    elif resource in {MEM, CORE}:
        amounts = use.units if resource == MEM else use.core
        amounts[pod] = amounts.get(pod, 0) + 1


def _answer(pod: str, container: ContainerGrant) -> Iterator[str]:
    """The environment names the GPUs of the devices, and their amount."""
    gpus = {gpu_of(one) for ids in container.ids.values() for one in ids}
    seen = container.envs.get(VISIBLE, "")
    if gpus and set(seen.split(",")) != gpus:
        yield f"{pod} has devices of {sorted(gpus)}, but sees {seen}"
    amount = container.envs.get(UNITS_OF_CONTAINER)
    if MEM in container.ids and amount != str(len(container.ids[MEM])):
        yield f"{pod} has {len(container.ids[MEM])} units, but its environment states {amount}"
