"""The program: one JSON object a line in, one out, until the input ends.

``{"do": "fill", "mib": 512}`` is answered by ``{"ok": {...}}`` or by
``{"error": {"name": "CUDA_ERROR_OUT_OF_MEMORY", "code": 2, "call": "cuMemAlloc_v2"}}``. The first
line comes by itself: whether the gpu could be opened. An error of CUDA never ends the program.
"""

import json
import sys
from typing import Any

from hardware.cuda.driver import CudaDevice, CudaError, load
from hardware.cuda.worker import CudaWorker


def main() -> int:
    """Serve standard input; exit status 1 if there is no gpu to work on."""
    try:
        worker = CudaWorker(CudaDevice(load()))
        say({"ok": worker.describe()})
    except CudaError as error:
        say(refused(error))
        return 1
    for line in sys.stdin:
        say(answered(worker, json.loads(line)))
    return 0


def answered(worker: CudaWorker, command: dict[str, Any]) -> dict[str, Any]:
    """The reply to one command; its other members are the arguments of the method."""
    name = command.pop("do")
    try:
        return {"ok": getattr(worker, name)(**command)}
    except CudaError as error:
        return refused(error)


def refused(error: CudaError) -> dict[str, Any]:
    """The reply that reports an error."""
    return {"error": {"name": error.name, "code": error.code, "call": error.call}}


def say(reply: dict[str, Any]) -> None:
    """One line, at once."""
    print(json.dumps(reply), flush=True)


if __name__ == "__main__":
    sys.exit(main())
