"""What NVML reports about the recovery that a GPU needs after an error.

A GPU that needs a reset answers most queries as if nothing had happened. Drivers from 565 on report
the recovery action; of older ones only the row remapper tells that a GPU has to be replaced. A row
that waits to be remapped is no fault: NVIDIA documents that new programs run correctly until then.

Sources: "Error Recovery and Response Flags" in NVIDIA's "GPU Memory Error Management", and the
values of ``nvmlDeviceGpuRecoveryAction_t`` in the NVML API reference.
"""

from collections.abc import Sequence
from typing import Any, Final

import pynvml

from gpudeviceplugin.gpus.nvml_calls import call_or_unknown

NOTHING: Final = ""
_ACTIONS: Final = {
    pynvml.NVML_GPU_RECOVERY_ACTION_GPU_RESET: "a reset of the GPU",
    pynvml.NVML_GPU_RECOVERY_ACTION_NODE_REBOOT: "a reboot of the node",
    pynvml.NVML_GPU_RECOVERY_ACTION_DRAIN_P2P: "the end of all peer-to-peer traffic",
    pynvml.NVML_GPU_RECOVERY_ACTION_DRAIN_AND_RESET: "that its pods end, and a reset of the GPU",
    pynvml.NVML_GPU_RECOVERY_ACTION_RECOVER_IMEX_DOMAIN: "a recovery of the IMEX domain",
    pynvml.NVML_GPU_RECOVERY_ACTION_BUS_RESET: "a reset of the GPU's bus",
    pynvml.NVML_GPU_RECOVERY_ACTION_SYSTEM_REBOOT: "a reboot of the whole system",
}


def needed_recovery(handle: Any) -> str | None:
    """What the driver requires before the GPU can be used again, as the object of "requires".

    Args:
        handle: of a GPU or a MIG instance, which recovers with its GPU.

    Returns:
        an empty text for nothing, and ``None`` where the driver does not report it.

    Raises:
        DriverUnavailableError: as it says; a lost GPU reports nothing here.
    """
    gpu = call_or_unknown(handle, pynvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle, handle)
    field = pynvml.NVML_FI_DEV_GET_GPU_RECOVERY_ACTION
    answers: Sequence[Any] = call_or_unknown((), pynvml.nvmlDeviceGetFieldValues, gpu, [field])
    for answer in answers:
        if answer.nvmlReturn == pynvml.NVML_SUCCESS:
            return _words(int(answer.value.uiVal))
    _, _, _, failed = call_or_unknown((0, 0, 0, 0), pynvml.nvmlDeviceGetRemappedRows, gpu)
    return "a replacement of the GPU: a row of its memory cannot be remapped" if failed else None


def _words(action: int) -> str:
    if action == pynvml.NVML_GPU_RECOVERY_ACTION_NONE:
        return NOTHING
    return _ACTIONS.get(action, f"recovery action {action} of NVML")
