"""The stage of the plugin's tests.

A cluster over HTTP, a kubelet on unix sockets, the cards of a machine.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))  # the fakes are packages beside the tests
