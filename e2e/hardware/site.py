"""Where shares are taken: what a machine without Kubernetes and a cluster have in common."""

from contextlib import AbstractContextManager
from typing import Protocol

from hardware.clients import Client
from hardware.grants import PublishedGpu, ShareSize


class Site(Protocol):
    """A GPU node on which a test or a measurement takes shares.

    Attributes:
        mps: whether daemons keep shares apart; else the GPU slices time.
        unit_mib: MiB of one unit of memory.
    """

    mps: bool
    unit_mib: int

    def gpus(self) -> tuple[PublishedGpu, ...]:
        """As the stack publishes them now."""

    def client(self, share: ShareSize, *, gpu: int = 0) -> AbstractContextManager[Client]:
        """A CUDA program on a share of its own on that GPU."""
