"""Another mock machine in the place of a worker's own, for as long as a block runs.

The description on the host is replaced and the node's plugin made anew, as when a node comes back
with other GPUs. No pod may hold a GPU of the node meanwhile; the usual machine comes back in any
case.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager

from environments import machines
from environments.environment import MachineGpu
from environments.kind import KindEnvironment
from environments.podresources import GPU_MEM, allocated, plugin_pod
from environments.waiting import until
from environments.workloads import GPU


@contextmanager
def playing(
    environment: KindEnvironment, node: str, machine: str
) -> Iterator[tuple[MachineGpu, ...]]:
    """The GPUs of ``machine``, which ``node`` has while the block runs."""
    usual = environment.machines[node]
    try:
        _become(environment, node, machine)
        yield machines.gpus(machine)
    finally:
        _become(environment, node, usual)


def _become(environment: KindEnvironment, node: str, machine: str) -> None:
    def idle() -> bool:
        return not allocated(environment, node, GPU, GPU_MEM)

    until("no GPU handed out", idle)
    machines.write_files(environment.folder / node, machine)
    plugin = plugin_pod(environment, node)
    environment.kubectl("delete", "pod", plugin, "-n", environment.namespace, "--wait=true")
    gpus = machines.gpus(machine)
    until(f"{node} offers the GPUs of {machine}", lambda: _offers(environment, node, gpus))


def _offers(environment: KindEnvironment, node: str, gpus: tuple[MachineGpu, ...]) -> bool:
    """Kubelet and the inventory both have these GPUs and no others."""
    found = environment.objects.node(node)
    offered = found["status"]["allocatable"]
    inventory = json.loads(found["metadata"]["annotations"].get("gpushare/inventory", "{}"))
    return (
        offered.get(GPU) == str(len(gpus))
        and offered.get(GPU_MEM) == str(sum(gpu.units for gpu in gpus))
        and [gpu["uuid"] for gpu in inventory.get("gpus", ())] == [gpu.uuid for gpu in gpus]
    )
