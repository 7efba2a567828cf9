"""What a start of the plugin imports."""

import subprocess
import sys

import pytest

UNUSED = {
    *("kubernetes", "pydantic", "requests", "urllib3", "yaml"),
    *("gpudeviceplugin.dra.driver", "gpudeviceplugin.dra.support"),  # where claims are enabled
    *("gpucore.node.claims.prepared", "gpucore.wire.claim.resource_claims"),
    *("gpudeviceplugin.isolation.driver_limits", "gpudeviceplugin.isolation.claim_limits"),
    "gpudeviceplugin.isolation.mps.fleet",  # where MPS is enabled
}


@pytest.mark.slow
def test_a_start_imports_no_module_that_a_node_does_not_need() -> None:
    """Each would stay in the memory of every GPU node."""
    program = f"import sys, gpudeviceplugin.__main__; print(sorted({UNUSED} & sys.modules.keys()))"
    shown = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, check=True, text=True, timeout=60
    )
    assert shown.stdout == "[]\n"
