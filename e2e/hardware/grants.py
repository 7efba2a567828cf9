"""Names and values of a share as a user of the stack meets them: resources, environment, figures.

The black-box side of the contract: spelled here again, as a manifest spells them.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

MEM: Final = "aliyun.com/gpu-mem"
CORE: Final = "aliyun.com/gpu-core.percentage"
WHOLE: Final = "aliyun.com/gpu"
INVENTORY: Final = "gpushare/inventory"
MPS: Final = "mps"

VISIBLE: Final = "NVIDIA_VISIBLE_DEVICES"
PIPES: Final = "CUDA_MPS_PIPE_DIRECTORY"
THREADS: Final = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"
MEMORY_LIMIT: Final = "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"
LIMIT_MIB: Final = "GPUSHARE_MEM_LIMIT_MIB"


class ShareSize(NamedTuple):
    """What a container requests: units of memory, and percent of compute (0: not requested)."""

    units: int
    core: int = 0

    def limits(self) -> dict[str, int]:
        """The amounts by resource name."""
        return {MEM: self.units} | ({CORE: self.core} if self.core else {})


@dataclass(frozen=True)
class PublishedGpu:
    """A GPU as the stack publishes it; ``mode`` is how it is shared: none, mps or mig."""

    index: int
    uuid: str
    model: str
    memory_mib: int
    units: int
    healthy: bool
    mode: str
    reserved_mib: int = 0


def gpus(inventory: str) -> tuple[PublishedGpu, ...]:
    """The GPUs in the text of the node's annotation ``gpushare/inventory``."""
    return tuple(
        PublishedGpu(
            index=each["index"],
            uuid=each["uuid"],
            model=each["model"],
            memory_mib=each["memoryMiB"],
            units=each["units"],
            healthy=each["healthy"],
            mode=each["mode"],
            reserved_mib=each["reservedMiB"],
        )
        for each in json.loads(inventory)["gpus"]
    )


def process_environment(envs: Mapping[str, str]) -> dict[str, str]:
    """What a container's processes see, for one that runs without a container.

    A container runtime turns NVIDIA_VISIBLE_DEVICES into device files; a plain process is narrowed
    to its GPU by CUDA_VISIBLE_DEVICES. With a uuid that is right for clients of MPS as well,
    whose server counts the GPUs anew (MPS documentation, CUDA_VISIBLE_DEVICES).
    """
    return dict(envs) | {"CUDA_VISIBLE_DEVICES": envs[VISIBLE]}
