"""The driver's moods: absent, old, or mismatched; and the rules of init and shutdown."""

import pytest

from mocknvml import build
from mocknvml.tests.conftest import Start

pytestmark = pytest.mark.slow

INIT_ERRORS = {
    "driver-not-loaded": "NVMLError_DriverNotLoaded",
    "version-mismatch": "NVMLError_LibRmVersionMismatch",
    "no-permission": "NVMLError_NoPermission",
    "unknown": "NVMLError_Unknown",
}


@pytest.mark.parametrize("word", INIT_ERRORS)
def test_init_error_is_simulated(start: Start, word: str) -> None:
    """`init = WORD` makes nvmlInit answer the error of that name."""
    worker = start(text=f"[driver]\ninit = {word}\n")
    assert worker.failure("nvmlInit") == INIT_ERRORS[word]
    assert worker.failure("nvmlDeviceGetCount") == "NVMLError_Uninitialized"


def test_driver_can_be_loaded_later(start: Start) -> None:
    """With `driver unloaded` in the state file init fails until `driver loaded` follows."""
    worker = start("t4-2x16", state="driver unloaded\n")
    assert worker.failure("nvmlInit") == "NVMLError_DriverNotLoaded"
    worker.append("driver loaded")
    worker.call("nvmlInit")
    assert worker.call("nvmlDeviceGetCount") == 2


def test_symbol_the_library_lacks(nvml: Start) -> None:
    """A function we do not provide fails as a missing symbol does: pynvml finds no function."""
    worker = nvml("t4-2x16")
    gpu = worker.gpus()[0]
    assert (
        worker.failure("nvmlDeviceGetTotalEnergyConsumption", gpu) == "NVMLError_FunctionNotFound"
    )


def test_old_driver_lacks_functions(nvml: Start) -> None:
    """A function named by `missing` is not found, one named by `unsupported` is not supported."""
    old = "[driver]\nmissing = nvmlDeviceGetMemoryInfo_v2\nunsupported = nvmlDeviceGetPowerUsage"
    text = build.machine("t4-2x16").read_text()
    text = old + "\n" + text[text.index("[numa 0]") :]
    worker = nvml(text=text)
    gpu = worker.gpus()[0]
    refusal = worker.failure("nvmlDeviceGetMemoryInfo", gpu, 0x02000028)
    assert refusal == "NVMLError_FunctionNotFound"
    assert worker.call("nvmlDeviceGetMemoryInfo", gpu)["total"] > 0
    assert worker.failure("nvmlDeviceGetPowerUsage", gpu) == "NVMLError_NotSupported"


def test_init_is_counted(nvml: Start) -> None:
    """The library stays initialized until every init is shut down; one more is an error."""
    worker = nvml("t4-2x16")
    worker.call("nvmlInit")
    worker.call("nvmlShutdown")
    assert worker.call("nvmlDeviceGetCount") == 2
    worker.call("nvmlShutdown")
    assert worker.failure("nvmlDeviceGetCount") == "NVMLError_Uninitialized"
    assert worker.failure("nvmlShutdown") == "NVMLError_Uninitialized"


def test_versions_and_sentences(nvml: Start) -> None:
    """Driver, NVML and CUDA versions come from the description; errors have their sentences."""
    worker = nvml("h200-8x141")
    assert worker.call("nvmlSystemGetNVMLVersion") == "12.550.90.07"
    assert worker.call("nvmlSystemGetCudaDriverVersion") == 12040
    assert worker.call("nvmlErrorString", 15) == "GPU is lost"
