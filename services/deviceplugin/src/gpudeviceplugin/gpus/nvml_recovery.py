"""What NVML reports about the recovery that a GPU needs after an error.

A GPU that needs a reset answers most queries as if nothing had happened. Drivers from 565 on report
the recovery action; the row remapper of all drivers tells that a GPU has to be replaced. A row that
waits to be remapped is no fault by itself: after an uncorrectable error there is an action too.

Sources: "Error Recovery and Response Flags" in NVIDIA's "GPU Memory Error Management", the
documentation of "GPU Recovery Action" in nvidia-smi, and the values of
``nvmlDeviceGpuRecoveryAction_t`` in the NVML API reference.
"""

import re
from collections.abc import Sequence
from typing import Any, Final

import pynvml

from gpudeviceplugin.gpus.nvml_calls import call_or_unknown

NOTHING: Final = ""
_BUS_RESET: Final = "a reset of the GPU's bus"
_ACTIONS: Final = {
    0: NOTHING,
    1: "a reset of the GPU",
    2: "a reboot of the node",
    3: "the end of all peer-to-peer traffic",
    4: "a reset of the GPU once its pods have ended",
    5: _BUS_RESET,
    6: _BUS_RESET,
    7: "a reboot of the whole system",
}
"""By number: older versions of pynvml lack names of some."""
_IMEX_DOMAIN: Final = 5
_IMEX_DRIVER: Final = 610
"""From this driver on 5 means that the IMEX domain has to be recovered, which no share uses."""


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
    _, _, _, failed = call_or_unknown((0, 0, 0, 0), pynvml.nvmlDeviceGetRemappedRows, gpu)
    reported = _reported(gpu)
    if failed and not reported:
        return "a replacement of the GPU: a row of its memory cannot be remapped"
    return reported


def _reported(gpu: Any) -> str | None:
    field = pynvml.NVML_FI_DEV_GET_GPU_RECOVERY_ACTION
    answers: Sequence[Any] = call_or_unknown((), pynvml.nvmlDeviceGetFieldValues, gpu, [field])
    for answer in answers:
        if answer.nvmlReturn == pynvml.NVML_SUCCESS:
            return _words(int(answer.value.uiVal))
    return None


def _words(action: int) -> str:
    if action == _IMEX_DOMAIN and _driver_version() >= _IMEX_DRIVER:
        return NOTHING
    return _ACTIONS.get(action, f"recovery action {action} of NVML")


def _driver_version() -> int:
    """The major version; 0 unknown."""
    text = str(call_or_unknown("", pynvml.nvmlSystemGetDriverVersion))
    found = re.match(r"\d+", text)
    return int(found[0]) if found else 0
