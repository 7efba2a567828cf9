"""Words that the program in a container and the checks of its answers have in common."""

from typing import Final

LIBRARY: Final = "libcuda.so.1"
NVML: Final = "libnvidia-ml.so.1"
OUT_OF_MEMORY: Final = "CUDA_ERROR_OUT_OF_MEMORY"
ENDED: Final = "ended"
"""Outcome of a process that ended without an answer."""
EXPECT: Final = "expect"
"""The step that ends a plan in a container with another GPU."""

FOLDER: Final = "GPUPROBE_FOLDER"
"""Variable: the folder that processes of one container exchange files in."""
READY: Final = "ready"
OUTSIDE: Final = "outside.json"
"""Files there: the container awaits a process from outside, and the answers of that one."""
