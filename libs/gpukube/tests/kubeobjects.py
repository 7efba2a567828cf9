"""Objects as an API server would have them, as small as possible."""

from typing import Any


def node(name: str) -> dict[str, Any]:
    """A node."""
    return {"kind": "Node", "metadata": {"name": name}, "status": {}}
