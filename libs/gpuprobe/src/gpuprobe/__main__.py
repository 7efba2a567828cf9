"""The program: one JSON object a line in, one out; or the steps of a plan, one line out for each.

``{"do": "fill", "mib": 512}`` is answered by ``{"ok": {...}}`` or by
``{"error": {"name": "CUDA_ERROR_OUT_OF_MEMORY", "code": 2, "call": "cuMemAlloc_v2"}}``. Without
arguments the first line comes by itself: whether the GPU could be opened. An error of CUDA never
ends the program.

python -m gpuprobe                 commands on standard input, until it ends
python -m gpuprobe PLAN            the steps of a plan, a JSON list
python -m gpuprobe PLAN FILE       the same once the container is ready; the answers go into a file
"""

import json
import sys
from typing import Any

from gpuprobe import running


def main(arguments: list[str] | None = None) -> int:
    """Serve standard input or run a plan; exit status 1 if there is no GPU to work on."""
    words = sys.argv[1:] if arguments is None else arguments
    if not words:
        return running.serve(sys.stdin, sys.stdout)
    plan: list[dict[str, Any]] = json.loads(words[0])
    if len(words) > 1:
        running.run_from_outside(plan, words[1])
    else:
        running.run(plan, sys.stdout)
    return 0


if __name__ == "__main__":
    sys.exit(main())
