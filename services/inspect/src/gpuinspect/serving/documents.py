"""The JSON and YAML of ``gpushare serve``; versioned as in :mod:`gpuinspect.documents.inspect`."""

import msgspec

from gpucore.wire.documents import API_VERSION, Document


class InstanceDoc(msgspec.Struct, frozen=True, rename="camel"):
    """One pod that serves; units by index of the GPU, 0 for a GPU that is held whole.

    Attributes:
        ready: containers that are ready, of all, as ``1/1``.
    """

    name: str
    phase: str
    ready: str
    restarts: int
    node: str
    gpus: dict[str, int]


class ServingDoc(msgspec.Struct, frozen=True, rename="camel"):
    """One served model and the request of each of its pods.

    Attributes:
        type: arena's word, such as ``tf-serving``.
        waiting: pods that the device plugin lets start after others on their GPU.
        address: cluster address of the Service; empty without one.
        ports: of the Service, as ``http:8501``.
    """

    namespace: str
    name: str
    deployment: str
    type: str
    version: str
    desired: int
    available: int
    waiting: int
    address: str
    ports: list[str]
    gpu_memory: int
    gpu_core: int
    gpu_count: int
    instances: list[InstanceDoc] = []


class ServingList(Document, frozen=True):
    """The answer of ``gpushare serve list -o json``, and with instances of ``serve get``."""

    items: list[ServingDoc]


def serving_list(items: list[ServingDoc]) -> ServingList:
    """The document of served models."""
    return ServingList(API_VERSION, "ServingList", items)
