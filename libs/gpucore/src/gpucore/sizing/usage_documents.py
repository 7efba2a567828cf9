"""The document of the device plugin's ``/usage``: GPU memory in use now, by GPU and pod.

Read within bounds, as that of histories.
"""

from collections.abc import Iterable
from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

from gpucore.wire.documents import API_VERSION, PluginDocument
from gpucore.wire.errors import WireError, decoded

KIND: Final = "NodeUsage"
MOST_BYTES: Final = 1024 * 1024
MOST_GPUS: Final = 256
MOST_PODS: Final = 2048
"""Pods of one GPU."""
MOST_CONTAINERS: Final = 64
"""Names of containers of one pod; a plugin leaves out the others."""

_Name = Annotated[str, Meta(max_length=253)]
_Bytes = Annotated[int, Meta(ge=0, le=2**53)]


class PodMemoryUse(msgspec.Struct, frozen=True, rename="camel", order=True):
    """Memory of one GPU that a pod has in use.

    Attributes:
        containers: those of the pod that hold GPUs; the driver's figure is that of all of them.
        idle_since: Unix seconds from which on every measurement found no memory in use; 0: it is
            in use, or that is not known. A restarted plugin begins anew.
        no_work_since: likewise, found that the pod's processes did not use the GPU's engines, as
            far as the driver reports that. Memory may be in use.
    """

    namespace: _Name
    name: _Name
    containers: Annotated[tuple[_Name, ...], Meta(max_length=MOST_CONTAINERS)]
    used_bytes: _Bytes
    idle_since: Annotated[float, Meta(ge=0, le=2**40)] = 0.0
    no_work_since: Annotated[float, Meta(ge=0, le=2**40)] = 0.0


class GpuMemoryUse(msgspec.Struct, frozen=True, rename="camel"):
    """One GPU that the driver has figures of.

    Attributes:
        unattributed_bytes: in use by processes of no known pod.
    """

    index: Annotated[int, Meta(ge=0, le=4096)]
    uuid: _Name
    used_bytes: _Bytes
    unattributed_bytes: _Bytes
    pods: Annotated[tuple[PodMemoryUse, ...], Meta(max_length=MOST_PODS)]


class NodeUsage(msgspec.Struct, frozen=True, rename="camel"):
    """Memory in use on one node.

    Attributes:
        measured_at: Unix seconds of the last measurement; 0 before the first.
    """

    api_version: Literal["gpushare/v1"]
    kind: Literal["NodeUsage"]
    node: _Name
    measured_at: Annotated[float, Meta(ge=0, le=2**40)]
    gpus: Annotated[tuple[GpuMemoryUse, ...], Meta(max_length=MOST_GPUS)]


_DECODER: Final = msgspec.json.Decoder(NodeUsage)


def node_usage(node: str, measured_at: float, gpus: Iterable[GpuMemoryUse]) -> NodeUsage:
    """The document of a node."""
    return NodeUsage(API_VERSION, KIND, node, measured_at, tuple(gpus))


def decode_usage(raw: bytes) -> NodeUsage:
    """The document in a reply.

    Raises:
        WireError: it is too large, or not of this kind and version, or a value of it is outside
            its range.
    """
    if len(raw) > MOST_BYTES:
        raise WireError(f"a reply of more than {MOST_BYTES} bytes")
    return decoded(_DECODER, raw, "no memory in use")


USAGE: Final = PluginDocument[NodeUsage]("usage", decode_usage, MOST_BYTES, seconds=2.0)
