"""The first lists of a process: they are asked for before anything that reads them is loaded."""

from typing import Final

NODES_PATH: Final = "/api/v1/nodes"
PODS_PATH: Final = "/api/v1/pods"
FIRST_PATHS: Final = (PODS_PATH, NODES_PATH)
"""The longest one first."""

FIRST_PARAMS: Final = {"resourceVersion": "0"}
"""What the API server remembers, without a question to its store; see `gpuextender.reflector`."""
