"""Nodes as the API server writes them, narrowed to what accounting and placement read."""

from collections.abc import Mapping
from typing import Final

import msgspec

from gpucore.model.constraints import Taint
from gpucore.units import NodeName
from gpucore.wire.errors import decoded
from gpucore.wire.names import LABEL_OVERSELL
from gpucore.wire.objects import Condition, ObjectMetadata
from gpucore.wire.quantity import Quantity, Texts, number

MOST_OVERSELL: Final = 16
"""A larger ratio counts as this one: kubelet reads a device list of bounded size."""


class Node(msgspec.Struct, frozen=True, gc=False):
    """One node object.

    Attributes:
        capacity, allocatable: resource name to Kubernetes quantity, as text.
        address: first InternalIP; empty unknown.
        unschedulable: cordoned.
        ready: condition Ready is True.
        kubelet, runtime: versions, such as ``v1.36.2`` and ``containerd://2.1.9``; empty unknown.
    """

    name: NodeName
    labels: Texts = {}
    annotations: Texts = {}
    capacity: Texts = {}
    allocatable: Texts = {}
    address: str = ""
    unschedulable: bool = False
    ready: bool = False
    resource_version: str = ""
    taints: tuple[Taint, ...] = ()
    kubelet: str = ""
    runtime: str = ""
    uid: str = ""


class _Metadata(ObjectMetadata):
    labels: Texts | None = None
    annotations: Texts | None = None


class _Taint(msgspec.Struct, gc=False):
    key: str = ""
    value: str | None = None
    effect: str = ""


class _Spec(msgspec.Struct, gc=False):
    unschedulable: bool | None = None
    taints: list[_Taint] | None = None


class _Address(msgspec.Struct, gc=False):
    type: str = ""
    address: str = ""


class _NodeInfo(msgspec.Struct, rename="camel", gc=False):
    kubelet_version: str = ""
    container_runtime_version: str = ""


class _Status(msgspec.Struct, rename="camel", gc=False):
    capacity: dict[str, Quantity] | None = None
    allocatable: dict[str, Quantity] | None = None
    addresses: list[_Address] | None = None
    conditions: list[Condition] | None = None
    node_info: _NodeInfo | None = None


class NodeObject(msgspec.Struct, gc=False):
    """A node in the nesting of the API; :func:`flat` makes it a :class:`Node`."""

    metadata: _Metadata
    spec: _Spec | None = None
    status: _Status | None = None


_DECODER = msgspec.json.Decoder(NodeObject)


def decode_node(raw: bytes | msgspec.Raw) -> Node:
    """Read one node object.

    Raises:
        WireError: the bytes are no node of the Kubernetes API.
    """
    return flat(decoded(_DECODER, raw, "no node"))


def flat(node: NodeObject) -> Node:
    """The narrow value of a nested node."""
    meta, status = node.metadata, node.status or _Status()
    info = status.node_info or _NodeInfo()
    return Node(
        name=NodeName(meta.name),
        labels=meta.labels or {},
        annotations=meta.annotations or {},
        capacity=status.capacity or {},
        allocatable=status.allocatable or {},
        address=_internal_ip(status),
        unschedulable=bool(node.spec and node.spec.unschedulable),
        ready=_is_ready(status),
        resource_version=meta.resource_version,
        taints=_taints(node.spec),
        kubelet=info.kubelet_version,
        runtime=info.container_runtime_version,
        uid=meta.uid,
    )


def _taints(spec: _Spec | None) -> tuple[Taint, ...]:
    taints = spec.taints if spec else None
    return tuple(Taint(each.key, each.value or "", each.effect) for each in taints or ())


def _internal_ip(status: _Status) -> str:
    for address in status.addresses or ():
        if address.type == "InternalIP":
            return address.address
    return ""


def _is_ready(status: _Status) -> bool:
    return any(c.type == "Ready" and c.status == "True" for c in status.conditions or ())


def oversell_of(labels: Mapping[str, str]) -> int:
    """How many times the memory of a node may be allocated; 1 where the label is no ratio.

    The device plugin advertises a device for each unit, and the ledger counts the same units.
    """
    return min(number(labels.get(LABEL_OVERSELL, "")) or 1, MOST_OVERSELL)


def oversell_fault(labels: Mapping[str, str]) -> str:
    """What is wrong with the label, as a sentence; empty where nothing is."""
    text = labels.get(LABEL_OVERSELL)
    if text is None or 1 <= (number(text) or 0) <= MOST_OVERSELL:
        return ""
    return f"label {LABEL_OVERSELL} is not a number from 1 to {MOST_OVERSELL}"
