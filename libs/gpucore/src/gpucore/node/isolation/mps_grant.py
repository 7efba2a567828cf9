"""Environment of a container behind an MPS daemon: its pipes and the limits of its share.

The rules are those of NVIDIA's "Multi-Process Service" manual, appendix "Environment Variables"
(``CUDA_MPS_PIPE_DIRECTORY``, ``CUDA_MPS_ACTIVE_THREAD_PERCENTAGE``,
``CUDA_MPS_PINNED_DEVICE_MEM_LIMIT``): limits hold for each client process and not for a container
as a whole, and memory limits name GPUs by the ordinal that the client sees. They are variables of
the container, so a pod must not replace them: CDI delivers them
(:mod:`gpucore.node.isolation.cdi`), and admission refuses such pods. A program can still unset
its own; :mod:`gpucore.node.isolation.limits` and :mod:`gpucore.node.isolation.overuse` find
those that do.
"""

from collections.abc import Sequence
from typing import Final

import msgspec

from gpucore.model import CORE_PER_GPU, Gpu, GpuAmounts
from gpucore.node.allocation.device_ids import Resource
from gpucore.units import MemoryUnit
from gpucore.wire import names as wire_names

SHM: Final = "/dev/shm"  # noqa: S108 - where daemon and clients share memory


class HostMount(msgspec.Struct, frozen=True):
    """A host directory in the container."""

    host_path: str
    container_path: str
    read_only: bool = False


class MpsPlace(msgspec.Struct, frozen=True):
    """Where the daemons of a node are, as paths of the host.

    Attributes:
        root: directory of the daemons that the plugin runs, one for each GPU.
        pipe: pipes of one daemon for all GPUs that the operator runs (``--mps-pipe``); where it is
            set, ``root`` is not used, and pods must share the host's IPC namespace themselves.
        read_only: containers cannot write to the directory of pipes; they still connect.
    """

    root: str
    pipe: str = ""
    read_only: bool = False

    def pipe_of(self, uuid: str) -> str:
        """The directory of pipes of the daemon that serves a GPU."""
        return self.pipe or f"{self.root}/{uuid}/pipe"

    @property
    def shm(self) -> str:
        """The shared memory of all daemons; they run in one container and so have one."""
        return f"{self.root}/shm"


def mps_grant(
    resource: Resource,
    counts: GpuAmounts,
    gpus: Sequence[Gpu],
    place: MpsPlace,
    *,
    unit: MemoryUnit | None,
    core_follows: bool,
) -> tuple[dict[str, str], tuple[HostMount, ...]]:
    """Environment and mounts of a share; nothing for exclusive GPUs and for GPUs without MPS.

    Where the driver limits memory, MPS limits compute only.

    Args:
        resource: the one that kubelet allocated ids of.
        gpus: those GPUs, in the order in which the container sees them.
        unit: of memory; ``None`` unknown, then memory is not limited.
        core_follows: the container requests compute too, so compute is not derived from memory.
    """
    if resource is Resource.GPU or not all(gpu.isolation.uses_mps for gpu in gpus):
        return {}, ()
    pipe = place.pipe_of(gpus[0].uuid)
    envs = {wire_names.ENV_MPS_PIPE: pipe}
    if resource is Resource.CORE or not core_follows:
        envs[wire_names.ENV_MPS_THREADS] = str(_threads(resource, counts, gpus))
    by_driver = all(gpu.isolation.uses_driver for gpu in gpus)
    if resource is Resource.MEM and unit is not None and not by_driver:
        envs[wire_names.ENV_MPS_MEMORY] = _memory(counts, gpus, unit)
    shm = () if place.pipe else (HostMount(place.shm, SHM),)
    return envs, (HostMount(pipe, pipe, read_only=place.read_only), *shm)


def _threads(resource: Resource, counts: GpuAmounts, gpus: Sequence[Gpu]) -> int:
    """Percent of each GPU's threads, one number for all, from 1 to 100.

    A share may be larger than its GPU where that is oversold.
    """
    if resource is Resource.CORE:
        return max(min(counts.values()), 1)
    least = min(CORE_PER_GPU * counts[gpu.index] // max(gpu.units, 1) for gpu in gpus)
    return min(max(least, 1), CORE_PER_GPU)


def _memory(counts: GpuAmounts, gpus: Sequence[Gpu], unit: MemoryUnit) -> str:
    """``0=3072M,1=3072M``: ordinals count the container's own GPUs."""
    amounts = (counts[gpu.index] * unit.mib for gpu in gpus)
    return ",".join(f"{ordinal}={amount}M" for ordinal, amount in enumerate(amounts))
