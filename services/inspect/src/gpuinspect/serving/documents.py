"""The JSON and YAML of ``gpushare serve``; versioned as in :mod:`gpuinspect.documents`."""

from collections.abc import Iterable

import msgspec

from gpuinspect.documents import API_VERSION
from gpuinspect.serving.served import Instance, Serving


class InstanceDoc(msgspec.Struct, frozen=True, rename="camel"):
    """One pod that serves; units by index of the card, 0 for a card that is held whole."""

    name: str
    phase: str
    ready: str
    restarts: int
    node: str
    gpus: dict[str, int]


class ServingDoc(msgspec.Struct, frozen=True, rename="camel"):
    """One served model and what each of its pods asks for."""

    namespace: str
    name: str
    deployment: str
    type: str
    version: str
    desired: int
    available: int
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


def serving_list(found: Iterable[tuple[Serving, Iterable[Instance]]]) -> ServingList:
    """The document of served models, each with the pods that are to be told."""
    items = [_serving(serving, pods) for serving, pods in found]
    return ServingList(API_VERSION, "ServingList", items)


def _serving(serving: Serving, pods: Iterable[Instance]) -> ServingDoc:
    return ServingDoc(
        namespace=serving.namespace,
        name=serving.name,
        deployment=serving.deployment,
        type=serving.kind,
        version=serving.version,
        desired=serving.desired,
        available=serving.available,
        address=serving.address,
        ports=list(serving.ports),
        gpu_memory=serving.gpu_memory,
        gpu_core=serving.gpu_core,
        gpu_count=serving.gpu_count,
        instances=[_instance(pod) for pod in pods],
    )


def _instance(pod: Instance) -> InstanceDoc:
    gpus = {str(index): units for index, units in pod.gpus.items()}
    return InstanceDoc(pod.name, pod.phase, pod.ready, pod.restarts, pod.node, gpus)
