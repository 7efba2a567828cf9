"""What a case may ask of the place it runs in; environments differ by fixture, cases do not."""

from collections.abc import Mapping
from typing import Protocol

import msgspec

from environments.kubectl import Kubectl
from environments.objects import Objects


class UnavailableError(RuntimeError):
    """This machine cannot carry the environment; states what is missing and how to get it."""


class MachineGpu(msgspec.Struct, frozen=True):
    """One GPU as the machine's description gives it.

    Attributes:
        units: GiB, rounded down.
    """

    index: int
    uuid: str
    units: int


class Environment(Protocol):
    """A running cluster with the stack installed.

    Attributes:
        namespace: where the stack lives.
        nodes: GPUs of each GPU node, by node name, independent of what the stack reports of them.
        image: a small image for the pods of a case (has sh, env, sleep).
        modelserver: an image that stands in for TensorFlow Serving's.
    """

    namespace: str
    kubectl: Kubectl
    objects: Objects
    nodes: Mapping[str, tuple[MachineGpu, ...]]
    image: str
    modelserver: str

    def wait_ready(self) -> None:
        """Wait until every part of the stack runs again."""
        ...

    @property
    def version(self) -> tuple[int, int]:
        """Major and minor version of Kubernetes."""
        ...

    def described(self) -> str:
        """What it runs on, in one line: the Kubernetes version and the node image."""
        ...
