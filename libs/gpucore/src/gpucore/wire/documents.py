"""The JSON documents that commands and APIs of this project answer with."""

from collections.abc import Callable
from typing import Final, Generic, Protocol, TypeVar

import msgspec

API_VERSION: Final = "gpushare/v1"
"""The contract: within a version fields are added and nothing else."""


class Document(msgspec.Struct, frozen=True, rename="camel"):
    """What every document begins with."""

    api_version: str
    kind: str


class OfNode(Protocol):
    """A document of one node."""

    @property
    def node(self) -> str:
        """Name of the node."""


DocT = TypeVar("DocT", bound=OfNode)


class PluginDocument(msgspec.Struct, Generic[DocT], frozen=True):
    """A document that every device plugin serves.

    Attributes:
        path: where a plugin serves it, without a slash.
        decode: reads a reply; raises :class:`~gpucore.wire.errors.WireError` for another document.
        most_bytes: maximum size of a reply.
        seconds: for all plugins together.
    """

    path: str
    decode: Callable[[bytes], DocT]
    most_bytes: int
    seconds: float
