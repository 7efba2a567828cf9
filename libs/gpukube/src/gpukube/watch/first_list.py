"""The first lists of a process; apart, so that a start can request them before it imports more."""

from typing import Final

PAGE: Final = 1000
"""Maximum number of items of one page."""

FIRST_LIST: Final = {"resourceVersion": "0", "limit": str(PAGE)}
"""Served from the watch cache of the API server, which ignores the limit and does not read etcd."""

NODES_PATH: Final = "/api/v1/nodes"
PODS_PATH: Final = "/api/v1/pods"

UNSCHEDULED: Final = {"fieldSelector": "spec.nodeName="}
"""Of pods: those without a node. A watch shows a pod that gets one as deleted."""
