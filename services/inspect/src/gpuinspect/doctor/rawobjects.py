"""Parts of Kubernetes objects that the checks read."""

from collections.abc import Iterator

import msgspec

from gpucore.wire.names import ENV_VISIBLE_DEVICES, NO_DEVICES
from gpucore.wire.objects import ObjectMetadata
from gpuinspect.cluster.rawpods import RawContainer, RawPodSpec, RawPodStatus, spec_and_status


class DoctorPodFacts(msgspec.Struct, frozen=True):
    """What a pod is allowed and how it fares.

    Attributes:
        privileged: a container of it is; it then sees every GPU.
        runtime_class: empty for the default.
        ready: condition Ready is True.
        looked_at: a scheduler has set the condition PodScheduled.
        restarts: of all containers.
        last_ends: why containers ended before, such as ``OOMKilled``; empty unknown.
        choosing_gpus: names of the containers whose environment chooses GPUs.
    """

    privileged: bool = False
    runtime_class: str = ""
    ready: bool = False
    looked_at: bool = False
    restarts: int = 0
    last_ends: str = ""
    choosing_gpus: tuple[str, ...] = ()


class NamedObject(msgspec.Struct):
    """The metadata of an object of any kind."""

    metadata: ObjectMetadata


def pod_facts(raw: msgspec.Raw) -> DoctorPodFacts:
    """The fields of a raw pod that the checks read."""
    spec, status = spec_and_status(raw)
    conditions = status.by_type
    return DoctorPodFacts(
        privileged=any(_privileged(spec)),
        runtime_class=spec.runtime_class_name or "",
        ready=conditions.get("Ready") == "True",
        looked_at="PodScheduled" in conditions,
        restarts=sum(each.restart_count for each in status.container_statuses or ()),
        last_ends=", ".join(sorted(_last_ends(status))),
        choosing_gpus=tuple(box.name for box in _containers(spec) if _chooses_gpus(box)),
    )


def _last_ends(status: RawPodStatus) -> set[str]:
    """Why containers ended, where the reason is more than that they did."""
    ends = (each.last_state for each in status.container_statuses or ())
    reasons = {end.terminated.reason for end in ends if end and end.terminated}
    return reasons - {"", "Error", "Completed"}


def _containers(spec: RawPodSpec) -> Iterator[RawContainer]:
    for boxes in (spec.containers, spec.init_containers, spec.ephemeral_containers):
        yield from boxes or ()


def _chooses_gpus(container: RawContainer) -> bool:
    """An empty value chooses none."""
    return any(
        each.value_from is not None or each.value not in {*NO_DEVICES, "", None}
        for each in container.env or ()
        if each.name == ENV_VISIBLE_DEVICES
    )


def _privileged(spec: RawPodSpec) -> Iterator[bool]:
    for container in (*(spec.containers or ()), *(spec.init_containers or ())):
        yield bool(container.security_context and container.security_context.privileged)
