"""Reasons why the node refuses an allocation; each becomes one gRPC error with one message.

kubelet shows the sentence in the status of the pod, so it is written for the pod's owner, and
counts pods of other owners without their names.
"""

from collections.abc import Iterable
from enum import StrEnum

import msgspec

from gpucore.units import GpuIndex


class AllocationErrorCode(StrEnum):
    """The reasons, as they are counted in metrics."""

    UNKNOWN_DEVICE = "UnknownDevice"
    UNHEALTHY = "Unhealthy"
    SPANS_GPUS = "SpansGpus"
    SPLITS_POD = "SplitsPod"
    TAKEN_WHOLE = "TakenWhole"
    SHARED_GPU = "SharedGpu"
    NO_GPU_FITS = "NoGpuFits"
    ISOLATION_MODE_MISSING = "IsolationModeMissing"
    MIG_INSTANCE = "MigInstance"
    MAX_PODS = "MaxPods"
    DEVICE_IN_USE = "DeviceInUse"
    NO_CDI_FILE = "NoCdiFile"
    OFFERED_AS_CLAIMS = "OfferedAsClaims"


class AllocationError(msgspec.Struct, frozen=True):
    """A request of kubelet that must not be granted.

    Attributes:
        sentence: for the pod's status.
        gpus: the GPUs concerned.
        pods: ``<namespace>/<name>`` of other pods that are in the way, for the log of the node.
    """

    code: AllocationErrorCode
    sentence: str
    gpus: tuple[GpuIndex, ...] = ()
    pods: tuple[str, ...] = ()


def gpu_list(gpus: Iterable[GpuIndex]) -> str:
    """``GPU 1``, ``GPUs 0 and 1``, ``GPUs 0, 1 and 2``."""
    names = [str(gpu) for gpu in sorted(gpus)]
    if len(names) == 1:
        return f"GPU {names[0]}"
    return f"GPUs {', '.join(names[:-1])} and {names[-1]}"
