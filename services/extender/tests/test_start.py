"""What a start loads, and when."""

import subprocess
import sys

import pytest


@pytest.mark.slow
def test_a_start_does_not_wait_for_what_it_can_do_without() -> None:
    """Neither the official client nor the framework is loaded before the API server is queried."""
    code = (
        "import sys, gpuextender.__main__;"
        "print(sorted({'kubernetes', 'fastapi'} & sys.modules.keys()))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=110, check=True
    )
    assert done.stdout.strip() == "[]"
