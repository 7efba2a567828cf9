"""The JSON and YAML of ``gpushare serve``; versioned as in :mod:`gpuinspect.documents.inspect`."""

from collections.abc import Iterable

import msgspec

from gpucore.wire.documents import API_VERSION
from gpuinspect.serving.served import Serving, ServingInstance


class InstanceDoc(msgspec.Struct, frozen=True, rename="camel"):
    """One pod that serves; units by index of the GPU, 0 for a GPU that is held whole."""

    name: str
    phase: str
    ready: str
    restarts: int
    node: str
    gpus: dict[str, int]


class ServingDoc(msgspec.Struct, frozen=True, rename="camel"):
    """One served model and the request of each of its pods."""

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


class ServingList(msgspec.Struct, frozen=True, rename="camel"):
    """The answer of ``gpushare serve list -o json``, and with instances of ``serve get``."""

    api_version: str
    kind: str
    items: list[ServingDoc]


def serving_list(found: Iterable[tuple[Serving, Iterable[ServingInstance]]]) -> ServingList:
    """The document of served models, each with its pods."""
    items = [_serving(serving, pods) for serving, pods in found]
    return ServingList(API_VERSION, "ServingList", items)


def _serving(serving: Serving, pods: Iterable[ServingInstance]) -> ServingDoc:
    return ServingDoc(
        namespace=serving.namespace,
        name=serving.name,
        deployment=serving.deployment,
        type=serving.kind,
        version=serving.version,
        desired=serving.desired,
        available=serving.available,
        waiting=serving.waiting,
        address=serving.address,
        ports=list(serving.ports),
        gpu_memory=serving.gpu_memory,
        gpu_core=serving.gpu_core,
        gpu_count=serving.gpu_count,
        instances=[_instance(pod) for pod in pods],
    )


def _instance(pod: ServingInstance) -> InstanceDoc:
    gpus = {str(index): units for index, units in pod.gpus.items()}
    return InstanceDoc(pod.name, pod.phase, pod.ready, pod.restarts, pod.node, gpus)
