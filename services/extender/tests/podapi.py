"""An API server that has one pod."""

import json
from typing import Any


class OnePod:
    """Gives the pod, whatever is requested."""

    def __init__(self, item: dict[str, Any]) -> None:
        self._raw = json.dumps(item).encode()

    async def get(self, path: str, *, params: object = None) -> bytes:
        """The pod."""
        return self._raw
