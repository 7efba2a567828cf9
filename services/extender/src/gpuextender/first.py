"""Paths of the first lists, which the process requests before it imports what reads them."""

from typing import Final

NODES_PATH: Final = "/api/v1/nodes"
PODS_PATH: Final = "/api/v1/pods"
FIRST_PATHS: Final = (PODS_PATH, NODES_PATH)
"""The longest list first."""
