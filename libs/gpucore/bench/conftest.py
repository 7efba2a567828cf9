"""Makes the fleet importable and builds it once."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from fleet import node_pages, pod_pages, read

from gpucore.accounting.ledger import Ledger


@pytest.fixture(scope="session")
def fleet() -> Ledger:
    """Books of 5,000 nodes with 50,000 pods."""
    return read(node_pages(), pod_pages())
