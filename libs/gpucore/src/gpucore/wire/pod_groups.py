"""PodGroups of Kubernetes (scheduling.k8s.io/v1beta1), narrowed to what placement reads."""

from typing import Final

import msgspec

from gpucore.wire.errors import decoded
from gpucore.wire.objects import Condition, ObjectMetadata
from gpucore.wire.pod.spec import Present

API: Final = "/apis/scheduling.k8s.io/v1beta1"
RESOURCE: Final = "podgroups"
PATH: Final = f"{API}/{RESOURCE}"
_SCHEDULED: Final = ("PodGroupInitiallyScheduled", "True")


class PodGroup(msgspec.Struct, frozen=True, gc=False):
    """One PodGroup.

    Attributes:
        min_count: pods that are placed together at least; 1 for the basic policy.
        disrupted_whole: preemption evicts all its pods or none.
        parent: name of its CompositePodGroup; empty where it has none.
        scheduled: kube-scheduler has found nodes for as many pods as it needs.
    """

    namespace: str
    name: str
    min_count: int = 1
    resource_version: str = ""
    disrupted_whole: bool = False
    parent: str = ""
    scheduled: bool = False


class _Gang(msgspec.Struct, rename="camel", gc=False):
    min_count: int = 1


class _Policy(msgspec.Struct, gc=False):
    gang: _Gang | None = None


class _DisruptionMode(msgspec.Struct, gc=False):
    all: Present | None = None


class _Spec(msgspec.Struct, rename="camel", gc=False):
    scheduling_policy: _Policy | None = None
    disruption_mode: _DisruptionMode | None = None
    parent_composite_pod_group_name: str | None = None


class _Status(msgspec.Struct, gc=False):
    conditions: list[Condition] | None = None


class _Object(msgspec.Struct, gc=False):
    metadata: ObjectMetadata
    spec: _Spec | None = None
    status: _Status | None = None


class _Resource(msgspec.Struct, gc=False):
    name: str = ""


class _ResourceList(msgspec.Struct, gc=False):
    resources: list[_Resource] | None = None


_OBJECT: Final = msgspec.json.Decoder(_Object)
_RESOURCES: Final = msgspec.json.Decoder(_ResourceList)


def decode_pod_group(raw: bytes | msgspec.Raw) -> PodGroup:
    """Read one PodGroup.

    Raises:
        WireError: the bytes are no PodGroup.
    """
    found = decoded(_OBJECT, raw, "no PodGroup")
    meta, spec = found.metadata, found.spec or _Spec()
    conditions = (found.status and found.status.conditions) or ()
    gang = spec.scheduling_policy.gang if spec.scheduling_policy else None
    return PodGroup(
        namespace=meta.namespace,
        name=meta.name,
        min_count=max(gang.min_count, 1) if gang else 1,
        resource_version=meta.resource_version,
        disrupted_whole=bool(spec.disruption_mode and spec.disruption_mode.all),
        parent=spec.parent_composite_pod_group_name or "",
        scheduled=any((one.type, one.status) == _SCHEDULED for one in conditions),
    )


def serves_pod_groups(raw: bytes) -> bool:
    """Whether the resources of the API group version, as discovery lists them, have PodGroups."""
    try:
        found = _RESOURCES.decode(raw)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return False
    return any(each.name == RESOURCE for each in found.resources or ())
