"""Namespaces whose pods may choose GPUs themselves: those of software that manages GPUs."""

from collections.abc import Iterator
from typing import Final

import msgspec

from gpucore.wire.names import ENV_VISIBLE_DEVICES
from gpuinspect.cluster.release import (
    KUBE_SYSTEM,
    NAMESPACE_NAME,
    NamespaceSelector,
    release_namespaces,
)
from gpuinspect.cluster.snapshots import Snapshot

GPU_SOFTWARE: Final = frozenset(
    {"gpu-operator", "nvidia-gpu-operator", "nvidia-device-plugin", "dcgm-exporter"}
)
"""The default of ``admissionPolicy.exemptNamespaces`` in the chart."""


class _Constraints(msgspec.Struct, rename="camel"):
    namespace_selector: NamespaceSelector = msgspec.field(default_factory=NamespaceSelector)


class _Spec(msgspec.Struct, rename="camel"):
    match_constraints: _Constraints = msgspec.field(default_factory=_Constraints)


class _Policy(msgspec.Struct):
    spec: _Spec = msgspec.field(default_factory=_Spec)


def exempt_namespaces(snapshot: Snapshot) -> frozenset[str]:
    """The default of the chart, and what its admission policy in this cluster exempts."""
    found = {*GPU_SOFTWARE, KUBE_SYSTEM, *release_namespaces(snapshot)}
    for raw in snapshot.all("ValidatingAdmissionPolicy"):
        if ENV_VISIBLE_DEVICES.encode() in bytes(raw):
            found.update(_excluded(msgspec.json.decode(raw, type=_Policy)))
    return frozenset(found)


def _excluded(policy: _Policy) -> Iterator[str]:
    for each in policy.spec.match_constraints.namespace_selector.match_expressions or ():
        if (each.key, each.operator) == (NAMESPACE_NAME, "NotIn"):
            yield from each.values or ()
