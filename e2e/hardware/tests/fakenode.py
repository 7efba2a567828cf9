"""A machine of fakes below the real plugin: mock NVML, a fake CUDA driver, a fake nvidia-smi."""

import os
import sys
from pathlib import Path
from typing import Final

from hardware.barenode import BareNode
from mocknvml import build

FIRST_UUID: Final = "GPU-84bc6439-fa3f-4477-8cd2-a7a3d5d9f18f"
SECOND_UUID: Final = "GPU-5580c11f-8756-4ab0-853d-3135237f3df0"
MEMORY_MIB: Final = 16130
GPUS_CSV: Final = (
    f"0, {FIRST_UUID}, Tesla T4, {MEMORY_MIB}, 418.87, Default, [N/A]\n"
    f"1, {SECOND_UUID}, Tesla T4, {MEMORY_MIB}, 418.87, Default, [N/A]\n"
)


class FakeMachine:
    """Its files, and the variables that lead programs to them.

    Attributes:
        env: to add to the environment of plugin, clients and nvidia-smi.
    """

    def __init__(self, folder: Path, cuda: Path) -> None:
        machine = folder / "machine"
        text = build.machine("t4-2x16").read_text().partition("[processes]")[0]
        machine.write_text(text)
        self._write_smi(folder)
        self.env = {
            "LD_LIBRARY_PATH": f"{build.ensure()}:{cuda}",
            "GPUSHARE_MOCK_NVML_MACHINE": str(machine),
            "FAKECUDA_MIB": str(MEMORY_MIB),
            "FAKECUDA_PROCESSES": str(folder),
            "USAGE_SECONDS": "0.5",  # the plugin's own default would make tests wait
            # the stand-in of MPS is run by this Python, not by a script that looks for one
            "PATH": f"{folder}:{Path(sys.executable).parent}:{os.environ['PATH']}",
        }

    def _write_smi(self, folder: Path) -> None:
        (folder / "gpus.csv").write_text(GPUS_CSV)
        program = folder / "nvidia-smi"
        program.write_text(
            "#!/bin/sh\n"
            'case "$1" in\n'
            "  *gpu_recovery_action) exit 2 ;;\n"  # as of a driver before 565
            f'  --query-gpu=*) cat "{folder}/gpus.csv" ;;\n'
            f'  --query-compute-apps=*) cat "{folder}/processes.csv" 2>/dev/null || : ;;\n'
            "esac\n"
        )
        program.chmod(0o755)

    def node(self, root: Path, *, mps: bool = False) -> BareNode:
        """The plugin on this machine."""
        return BareNode(root, mps=mps, env=self.env)
