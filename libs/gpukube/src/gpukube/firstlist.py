"""Query of the first list of a process; apart, so that a start can send it before it loads more."""

from typing import Final

PAGE: Final = 1000
"""Maximum number of items of one page."""

FIRST_LIST: Final = {"resourceVersion": "0", "limit": str(PAGE)}
"""Served from the watch cache of the API server, which ignores the limit and asks no etcd."""
