"""Pods to and from the wire: the one name to import for everything about a pod's bytes and text."""

from gpucore.wire.claims import claim_of
from gpucore.wire.demands import demand_of
from gpucore.wire.placements import annotations_of
from gpucore.wire.podspec import Container, Pod, decode_pod

__all__ = ["Container", "Pod", "annotations_of", "claim_of", "decode_pod", "demand_of"]
