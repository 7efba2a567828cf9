"""Stands for a CUDA program that allocates GPU memory: the mock library decides and keeps account.

It runs in a container with a share, where the mock library, its state and the cgroups of the node
are mounted. Each argument is an amount in MiB; a line reports whether it was allocated.
"""

import ctypes
import os
import sys
from pathlib import Path

LIBRARY = "/machine/nvml/libnvidia-ml.so.1"
OUT_OF_MEMORY = 20  # NVML_ERROR_MEMORY
MIB = 1 << 20


def pod_cgroup(root: str, uid: str) -> str:
    """The cgroup of a pod below the mount, by either driver of kubelet."""
    names = (f"pod{uid}", f"pod{uid.replace('-', '_')}.slice")
    found = [path for path in Path(root).glob("**/*") if path.name.endswith(names)]
    return str(min(found, key=lambda path: len(path.parts)))


def main() -> None:
    """Allocate all amounts one after the other."""
    library = ctypes.CDLL(LIBRARY)
    if library.nvmlInit_v2() != 0:
        sys.exit("the mock library does not start")
    gpu = ctypes.c_void_p()
    uuid = os.environ["NVIDIA_VISIBLE_DEVICES"].encode()
    if library.nvmlDeviceGetHandleByUUID(uuid, ctypes.byref(gpu)) != 0:
        sys.exit("no such GPU")
    cgroup = pod_cgroup(os.environ["CGROUP_ROOT"], os.environ["POD_UID"]).encode()
    for amount in sys.argv[1:]:
        answer = library.gpushareMockAllocate(gpu, cgroup, ctypes.c_ulonglong(int(amount) * MIB))
        words = {0: "allocated", OUT_OF_MEMORY: "out of memory"}.get(answer, f"error {answer}")
        print(f"{amount} {words}", flush=True)


if __name__ == "__main__":
    main()
