"""Facade of the pod codecs."""

from gpucore.wire.pod.allocations import allocation_of
from gpucore.wire.pod.placements import annotations_of
from gpucore.wire.pod.requests import kai_limit
from gpucore.wire.pod.spec import Container, Pod, created, decode_pod
from gpucore.wire.whole_requests import pod_request_of

__all__ = [
    "Container",
    "Pod",
    "allocation_of",
    "annotations_of",
    "created",
    "decode_pod",
    "kai_limit",
    "pod_request_of",
]
